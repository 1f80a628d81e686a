"""The tool's own chain: grids, pairs, ranks, layouts, element types, several operands, computations, schedules."""

from __future__ import annotations

from .forms import Form, Setting, by_tool, module_text, ring, tidy

CROSS = ((0, 1), (1, 0))
FULL = ((0, 2), (2, 3), (3, 1), (1, 0))
CYCLES = ((0, 1), (1, 0), (2, 3), (3, 2))
KEPT = ((0, 0), (1, 3), (3, 1), (2, 2))
CHAIN = ((0, 1), (1, 2), (2, 3))


def _single(name: str, setting: Setting, level: str = "source", **options: object) -> Form:
    header = setting.header + (", is_scheduled=true" if level == "scheduled" else "")
    before = setting.module([setting.permute()], header=header)
    return by_tool(name, before, setting.replicas, setting.partitions, level, **options)


def tool_forms() -> list[Form]:
    """All of them."""
    return [*_grids(), *_arrays(), *_texts(), *_computations()]


def _grids() -> list[Form]:
    eight = ((0, 5), (5, 2), (2, 0), (7, 7), (1, 3))
    return [
        _single("replicas", Setting(4, 1, FULL, channel=False)),
        _single("partitions", Setting(1, 4, FULL)),
        _single("cycles", Setting(1, 4, CYCLES)),
        _single("kept shards", Setting(4, 1, KEPT, channel=False)),
        _single("partial", Setting(1, 4, CHAIN)),
        _single("partial with a kept shard", Setting(1, 4, ((2, 2), (0, 3)))),
        _single("one pair", Setting(4, 1, ((1, 3),), channel=False)),
        _single("no pairs", Setting(1, 4, ())),
        _single("all kept", Setting(1, 4, tuple((i, i) for i in range(4)))),
        _single("two by four, partitions", Setting(2, 4, FULL)),
        _single("two by four, replicas", Setting(2, 4, CROSS, channel=False)),
        _single("two by four, partial", Setting(2, 4, ((0, 1), (1, 3)))),
        _single("two by four, partial replicas", Setting(2, 4, ((1, 0),), channel=False)),
        _single("four by two, replicas", Setting(4, 2, FULL, channel=False)),
        _single("four by two, partitions", Setting(4, 2, CROSS)),
        _single("eight partitions", Setting(1, 8, ring(8, 3))),
        _single("eight replicas, partial", Setting(8, 1, eight, channel=False)),
    ]


def _arrays() -> list[Form]:
    return [
        _single("scalar", Setting(1, 4, FULL, "s32", ())),
        _single("scalar, partial", Setting(4, 1, CHAIN, "f32", (), channel=False)),
        _single("vector", Setting(1, 4, FULL, "f32", (3,))),
        _single("one element", Setting(1, 4, FULL, "f32", (1, 1))),
        _single("square", Setting(1, 4, FULL, "f32", (3, 3))),
        _single("cube", Setting(4, 1, CHAIN, "f32", (2, 3, 4), channel=False)),
        _single("column-major", Setting(1, 4, FULL, "f32", (2, 3), layout=(0, 1)), "scheduled"),
        _single("major in the middle", Setting(1, 4, CHAIN, "f32", (2, 3, 2), layout=(0, 2, 1)), "scheduled"),
        _single("long shards", Setting(1, 4, FULL, "u8", (64, 2))),
        _single("bf16", Setting(1, 4, CHAIN, "bf16")),
        _single("f8", Setting(1, 4, CHAIN, "f8e4m3fn", (4, 4))),
        _single("s4", Setting(1, 4, CHAIN, "s4", (4, 6))),
        _single("s4, kept packed", Setting(1, 4, FULL, "s4", (4, 6)), sub_byte="keep"),
        _single("pred", Setting(1, 4, CHAIN, "pred", (5, 6))),
        _single("c64", Setting(4, 1, CHAIN, "c64", channel=False)),
        _single("s64", Setting(1, 4, FULL, "s64")),
    ]


def _texts() -> list[Form]:
    row = Setting(1, 4, FULL, layout=(1, 0))
    partial = Setting(1, 4, CHAIN)
    shape = partial.shape
    both = f"({shape}, s32[4])"
    variadic = module_text(
        partial.header,
        [
            f"p = {shape} parameter(0)",
            "q = s32[4] parameter(1)",
            f"cp = {both} collective-permute(p, q), channel_id=3, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}}}}",
            f"a = {shape} get-tuple-element(cp), index=0",
            "b = s32[4] get-tuple-element(cp), index=1",
            "c = s32[4] negate(b)",
            f"ROOT out = ({shape}, s32[4], s32[4]) tuple(a, c, b)",
        ],
    )
    waits = module_text(
        partial.header,
        [
            f"p = {shape} parameter(0)",
            f"q = {shape} parameter(1)",
            f"first = {shape} multiply(q, q)",
            partial.permute() + ", control-predecessors={first}",
            f"sum = {shape} add(cp, first)",
            f"late = {shape} negate(q), control-predecessors={{cp}}",
            f"ROOT out = ({shape}, {shape}, {shape}) tuple(sum, cp, late)",
        ],
    )
    two = module_text(
        partial.header,
        [
            f"p = {shape} parameter(0)",
            f"q = {shape} parameter(1)",
            partial.permute("p", "one"),
            partial.permute("q", "two", FULL),
            partial.permute("two", "three", ring(4)),
            f"sum = {shape} subtract(one, two)",
            f"ROOT out = ({shape}, {shape}) tuple(sum, three)",
        ],
    )
    root = module_text(
        partial.header, [f"p = {shape} parameter(0)", f"q = {shape} negate(p)", f"ROOT {partial.permute('q')}"]
    )
    nested = module_text(
        partial.header,
        [
            f"a = ({shape}, {shape}) parameter(0)",
            f"p = {shape} get-tuple-element(a), index=1",
            partial.permute(),
            f"q = {shape} get-tuple-element(a), index=0",
            f"inner = ({shape}, {shape}) tuple(cp, q)",
            f"ROOT out = ({shape}, ({shape}, {shape})) tuple(p, inner)",
        ],
    )
    return [
        _single("scheduled", row, "scheduled"),
        _single("scheduled, partial", Setting(2, 4, CHAIN, layout=(1, 0)), "scheduled"),
        _single("names kept", partial, names="keep"),
        by_tool("variadic", variadic, 1, 4, "scheduled"),
        by_tool("control predecessors", waits, 1, 4, "scheduled"),
        by_tool("three permutes", two, 1, 4),
        by_tool("root", root, 1, 4),
        by_tool("inside tuples", nested, 1, 4),
    ]


def _computations() -> list[Form]:
    setting = Setting(1, 4, CHAIN)
    other = Setting(2, 2, CROSS)
    shape = setting.shape
    state = f"(s32[], {shape}, {shape})"
    loop = tidy(f"""
        body {{
          s = {state} parameter(0)
          i = s32[] get-tuple-element(s), index=0
          p = {shape} get-tuple-element(s), index=1
          q = {shape} get-tuple-element(s), index=2
          one = s32[] constant(1)
          j = s32[] add(i, one)
          {setting.permute()}
          sum = {shape} add(cp, q)
          ROOT t = {state} tuple(j, sum, q)
        }}
        condition {{
          s = {state} parameter(0)
          i = s32[] get-tuple-element(s), index=0
          n = s32[] constant(3)
          ROOT c = pred[] compare(i, n), direction=LT
        }}
    """)
    in_loop = module_text(
        setting.header,
        [
            f"p = {shape} parameter(0)",
            f"q = {shape} parameter(1)",
            "zero = s32[] constant(0)",
            f"start = {state} tuple(zero, p, q)",
            f"loop = {state} while(start), condition=condition, body=body",
            f"ROOT out = {shape} get-tuple-element(loop), index=1",
        ],
        loop,
    )
    called = tidy(f"""
        moved {{
          p = {shape} parameter(0)
          q = {shape} parameter(1)
          {setting.permute()}
          ROOT r = {shape} subtract(cp, q)
        }}
    """)
    in_call = module_text(
        setting.header,
        [
            f"p = {shape} parameter(0)",
            f"q = {shape} parameter(1)",
            f"r = {shape} call(p, q), to_apply=moved",
            f"ROOT out = {shape} multiply(r, q)",
        ],
        called,
    )
    branches = tidy(f"""
        taken {{
          p = {shape} parameter(0)
          {other.permute()}
          ROOT r = {shape} negate(cp)
        }}
        left {{
          p = {shape} parameter(0)
          ROOT r = {shape} copy(p)
        }}
        least {{
          a = s32[] parameter(0)
          b = s32[] parameter(1)
          ROOT r = s32[] minimum(a, b)
        }}
    """)
    in_branch = module_text(
        other.header,
        [
            f"p = {shape} parameter(0)",
            "q = s32[] parameter(1)",
            "least.1 = s32[] all-reduce(q), channel_id=9, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=least",
            "bound = s32[] constant(20)",
            "first = pred[] compare(least.1, bound), direction=LT",
            f"ROOT out = {shape} conditional(first, p, p), true_computation=taken, false_computation=left",
        ],
        branches,
    )
    return [
        by_tool("in a loop", in_loop, 1, 4),
        by_tool("in a call", in_call, 1, 4),
        by_tool("in a conditional", in_branch, 2, 2),
    ]
