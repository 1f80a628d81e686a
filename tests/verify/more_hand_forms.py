"""Replacements of a permute by hand: other collectives, permutes for permutes, asynchronous pairs, computations."""

from __future__ import annotations

from .forms import Form, Pairs, Setting, by_hand, lines_of, module_text, pairs_text, ring
from .hand_forms import ALL, CHAIN, FULL, GATHER, IDENTITY, OFFSET, PICK, looked_up

INTEGER_ZEROS = """
    zero = s32[] constant(0)
    zeros = s32[8,3] broadcast(zero), dimensions={}
"""
SUM = """
    join {
      a = s32[] parameter(0)
      b = s32[] parameter(1)
      ROOT r = s32[] add(a, b)
    }
"""


def more_hand_forms() -> list[Form]:
    """All of them."""
    return [*_collectives(), *_permutes(), *_asynchronous(), *_computations()]


def _collectives() -> list[Form]:
    full = Setting(1, 4, FULL)
    integers = Setting(1, 4, FULL, "s32")
    own_rows = """
        own = s32[] convert(id)
        rows = s32[] constant(2)
        mine = s32[] multiply(own, rows)
        none = s32[] constant(0)
    """
    return [
        by_hand("all-to-all of copies", full, f"""
            wide = f32[4,2,3] broadcast(p), dimensions={{1,2}}
            all = f32[4,2,3] all-to-all(wide), channel_id=2, replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}
            {IDENTITY}
            {looked_up()}
            none = s32[] constant(0)
            found = f32[1,2,3] dynamic-slice(all, source, none, none), dynamic_slice_sizes={{1,2,3}}
            cp = f32[2,3] reshape(found)
        """),
        by_hand("all-to-all to one", Setting(1, 4, CHAIN), f"""
            zero = f32[] constant(0)
            zeros = f32[4,2,3] broadcast(zero), dimensions={{}}
            one = f32[1,2,3] reshape(p)
            {IDENTITY}
            {looked_up("{1,2,3,0}", name="target")}
            none = s32[] constant(0)
            sent = f32[4,2,3] dynamic-update-slice(zeros, one, target, none, none)
            all = f32[4,2,3] all-to-all(sent), channel_id=2, replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}
            {looked_up("{1,0,1,2}")}
            found = f32[1,2,3] dynamic-slice(all, source, none, none), dynamic_slice_sizes={{1,2,3}}
            cp = f32[2,3] reshape(found)
        """),
        by_hand("all-reduce of what is apart", integers, f"""
            {INTEGER_ZEROS}
            {IDENTITY}
            {own_rows}
            sent = s32[8,3] dynamic-update-slice(zeros, p, mine, none)
            all = s32[8,3] all-reduce(sent), channel_id=2, {ALL}, to_apply=join
            {looked_up()}
            start = s32[] multiply(source, rows)
            cp = s32[2,3] dynamic-slice(all, start, none), dynamic_slice_sizes={{2,3}}
        """, helpers=SUM),
        by_hand("reduce-scatter of what is apart", Setting(1, 4, CHAIN, "s32"), f"""
            {INTEGER_ZEROS}
            {IDENTITY}
            {looked_up("{2,4,6,8}", name="target")}
            none = s32[] constant(0)
            more = s32[10,3] pad(zeros, zero), padding=0_2x0_0
            placed = s32[10,3] dynamic-update-slice(more, p, target, none)
            sent = s32[8,3] slice(placed), slice={{[0:8], [0:3]}}
            cp = s32[2,3] reduce-scatter(sent), channel_id=2, {ALL}, dimensions={{0}}, to_apply=join
        """, helpers=SUM),
        by_hand("floats as integers in an all-reduce", full, f"""
            {INTEGER_ZEROS}
            {IDENTITY}
            bits = s32[2,3] bitcast-convert(p)
            {looked_up("{4,0,6,2}", name="target")}
            none = s32[] constant(0)
            sent = s32[8,3] dynamic-update-slice(zeros, bits, target, none)
            all = s32[8,3] all-reduce(sent), channel_id=2, {ALL}, to_apply=join
            own = s32[] convert(id)
            rows = s32[] constant(2)
            start = s32[] multiply(own, rows)
            found = s32[2,3] dynamic-slice(all, start, none), dynamic_slice_sizes={{2,3}}
            cp = f32[2,3] bitcast-convert(found)
        """, helpers=SUM),
        by_hand("gathered wide", Setting(1, 4, FULL, "s8"), f"""
            wide = s32[2,3] convert(p)
            ag = s32[8,3] all-gather(wide), channel_id=2, {ALL}, dimensions={{0}}
            {IDENTITY}
            {looked_up()}
            {OFFSET}
            found = s32[2,3] dynamic-slice(ag, start, none), dynamic_slice_sizes={{2,3}}
            cp = s8[2,3] convert(found)
        """),
        by_hand("broadcast to one", Setting(4, 1, ((2, 0),), channel=False), """
            all = f32[2,3] collective-broadcast(p), replica_groups={{2,0,1,3}}
            id = u32[] replica-id()
            first = u32[] constant(0)
            heard = pred[] compare(id, first), direction=EQ
            wide = pred[2,3] broadcast(heard), dimensions={}
            zero = f32[] constant(0)
            zeros = f32[2,3] broadcast(zero), dimensions={}
            cp = f32[2,3] select(wide, all, zeros)
        """),
    ]  # fmt: skip


def back_of(pairs: Pairs) -> Pairs:
    return tuple((t, s) for s, t in pairs)


def _permutes() -> list[Form]:
    full = Setting(1, 4, FULL)
    integers = Setting(1, 4, FULL, "s32")
    chain = Setting(1, 4, CHAIN)
    halves = FULL[:2], FULL[2:]
    shape = full.shape
    frame = (f"p = {shape} parameter(0)", f"q = {shape} parameter(1)")

    def pair(name: str, before: list[str], after: list[str], result: str = "cp", setting: Setting = full) -> Form:
        return Form(name, setting.module(before), setting.module(after, result), setting.replicas, setting.partitions)

    raised = full.module(lines_of(f"{GATHER}\n{IDENTITY}\n{looked_up()}\n{OFFSET}\n{PICK}"))
    lowered_partial = chain.module(
        lines_of(f"""
            {GATHER}
            {IDENTITY}
            {looked_up("{0,0,1,2}")}
            {OFFSET}
            found = f32[2,3] dynamic-slice(ag, start, none), dynamic_slice_sizes={{2,3}}
            flags = pred[4] constant({{0, 1, 1, 1}})
            flag = pred[1] dynamic-slice(flags, id), dynamic_slice_sizes={{1}}
            heard = pred[] reshape(flag)
            zero = f32[] constant(0)
            zeros = f32[2,3] broadcast(zero), dimensions={{}}
            cp = f32[2,3] select(heard, found, zeros)
        """)
    )
    sum_of_two = module_text(full.header, [
        *frame, full.permute("p", "one"), full.permute("q", "two"), f"ROOT sum = {shape} add(one, two)",
    ])  # fmt: skip
    packed = module_text(full.header, [
        *frame,
        "both = f32[4,3] concatenate(p, q), dimensions={0}",
        f"moved = f32[4,3] collective-permute(both), channel_id=1, {pairs_text(FULL)}",
        f"one = {shape} slice(moved), slice={{[0:2], [0:3]}}",
        f"two = {shape} slice(moved), slice={{[2:4], [0:3]}}",
        f"ROOT sum = {shape} add(one, two)",
    ])  # fmt: skip
    return [
        by_hand("two permutes and a select", full, f"""
            {full.permute("p", "one", halves[0], 2)}
            {full.permute("p", "two", halves[1], 3)}
            {IDENTITY}
            flags = pred[4] constant({{0, 0, 1, 1}})
            flag = pred[1] dynamic-slice(flags, id), dynamic_slice_sizes={{1}}
            first = pred[] reshape(flag)
            cp = f32[2,3] select(first, one, two)
        """),
        by_hand("two permutes and a sum", integers, f"""
            {integers.permute("p", "one", halves[0], 2)}
            {integers.permute("p", "two", halves[1], 3)}
            cp = s32[2,3] add(one, two)
        """),
        by_hand("kept shards beside a permute", Setting(4, 1, ((0, 0), (1, 2), (2, 1)), channel=False), """
            moved = f32[2,3] collective-permute(p), source_target_pairs={{1,2},{2,1}}
            id = u32[] replica-id()
            first = u32[] constant(0)
            keeps = pred[] compare(id, first), direction=EQ
            cp = f32[2,3] select(keeps, p, moved)
        """),
        by_hand("unfolded", full, f"""
            {full.permute("p", "one", ring(4), 2)}
            cp = f32[2,3] collective-permute(one), channel_id=3, source_target_pairs={{{{1,2}},{{3,3}},{{0,1}},{{2,0}}}}
        """),
        pair("two permutes folded", [full.permute("p", "one", ring(4)), full.permute("one", "cp", CHAIN)],
             [full.permute("p", "cp", ((0, 2), (1, 3), (3, 1)))]),
        pair("identity removed", [full.permute("p", "cp", tuple((i, i) for i in range(4)))], [], "p"),
        pair("there and back removed", [full.permute("p", "one", FULL), full.permute("one", "cp", back_of(FULL))],
             [], "p"),
        pair("no pairs, zeros", [full.permute("p", "cp", ())],
             ["zero = f32[] constant(0)", "cp = f32[2,3] broadcast(zero), dimensions={}"]),
        Form("raised", raised, full.module([full.permute(channel=2)]), 1, 4),
        Form("raised, partial", lowered_partial, chain.module([chain.permute(channel=2)]), 1, 4),
        Form("packed into one permute", sum_of_two, packed, 1, 4),
        by_hand("replicas instead of partitions", Setting(4, 1, FULL, channel=False), f"""
            ag = f32[8,3] all-gather(p), replica_groups={{}}, dimensions={{0}}
            id = u32[] replica-id()
            {looked_up()}
            {OFFSET}
            {PICK}
        """),
    ]  # fmt: skip


def _asynchronous() -> list[Form]:
    full = Setting(1, 4, FULL)
    return [
        by_hand("all-gather-start and done", full, f"""
            begun = (f32[2,3], f32[8,3]) all-gather-start(p), channel_id=2, {ALL}, dimensions={{0}}
            ag = f32[8,3] all-gather-done(begun)
            {IDENTITY}
            {looked_up()}
            {OFFSET}
            {PICK}
        """),
        by_hand("collective-permute-start and done", full, f"""
            begun = (f32[2,3], f32[2,3]) collective-permute-start(p), channel_id=1, {pairs_text(FULL)}
            cp = f32[2,3] collective-permute-done(begun)
        """),
    ]  # fmt: skip


def _computations() -> list[Form]:
    full = Setting(1, 4, FULL)
    row = Setting(1, 4, FULL, layout=(1, 0))
    shape, state = full.shape, "(s32[], f32[2,3])"
    back = Setting(1, 4, ring(4, 3))
    chain = f"""
        {IDENTITY}
        {looked_up()}
        {OFFSET}
        ROOT r = f32[2,3] dynamic-slice(a, start, none), dynamic_slice_sizes={{2,3}}
    """
    apart = Setting(2, 2, ((0, 1), (1, 0)))
    divided = """
        taken {{
          a = f32[2,3] parameter(0)
          {lines}
        }}
        left {{
          a = f32[2,3] parameter(0)
          ROOT r = f32[2,3] negate(a)
        }}
    """
    body = [
        "p = f32[2,3] parameter(0)",
        "id = u32[] replica-id()",
        "zero = u32[] constant(0)",
        "first = pred[] compare(id, zero), direction=EQ",
        "ROOT out = f32[2,3] conditional(first, p, p), true_computation=taken, false_computation=left",
    ]
    by_replica = Form(
        "in one replica alone",
        module_text(apart.header, body, divided.format(lines=f"ROOT {apart.permute('a')}")),
        module_text(apart.header, body, divided.format(lines="""
          ag = f32[4,3] all-gather(a), channel_id=2, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, dimensions={0}
          id = u32[] partition-id()
          one = u32[] constant(1)
          source = u32[] xor(id, one)
          rows = u32[] constant(2)
          start = u32[] multiply(source, rows)
          none = u32[] constant(0)
          ROOT r = f32[2,3] dynamic-slice(ag, start, none), dynamic_slice_sizes={2,3}
        """)),
        2,
        2,
    )  # fmt: skip
    return [
        by_hand("in a called computation", full, f"{GATHER}\ncp = {shape} call(ag), to_apply=pick",
                helpers=f"pick {{\na = f32[8,3] parameter(0)\n{chain}\n}}"),
        Form(
            "in a fusion",
            row.module([row.permute()]).replace("num_partitions=4", "num_partitions=4, is_scheduled=true"),
            row.module(
                lines_of(f"""
                    ag = f32[8,3]{{1,0}} all-gather(p), channel_id=2, {ALL}, dimensions={{0}}
                    {IDENTITY}
                    cp = f32[2,3]{{1,0}} fusion(ag, id), kind=kLoop, calls=pick
                """),
                helpers=f"""
                    pick {{
                      a = f32[8,3]{{1,0}} parameter(0)
                      id = u32[] parameter(1)
                      {looked_up()}
                      {OFFSET}
                      ROOT r = f32[2,3]{{1,0}} dynamic-slice(a, start, none), dynamic_slice_sizes={{2,3}}
                    }}
                """,
            ).replace("num_partitions=4", "num_partitions=4, is_scheduled=true"),
            1,
            4,
            "scheduled",
        ),
        by_hand("by a loop", back, f"""
            zero = s32[] constant(0)
            begin = {state} tuple(zero, p)
            loop = {state} while(begin), condition=again, body=turn
            cp = f32[2,3] get-tuple-element(loop), index=1
        """, helpers=f"""
            turn {{
              s = {state} parameter(0)
              i = s32[] get-tuple-element(s), index=0
              a = f32[2,3] get-tuple-element(s), index=1
              one = s32[] constant(1)
              j = s32[] add(i, one)
              b = f32[2,3] collective-permute(a), channel_id=2, {pairs_text(ring(4))}
              ROOT t = {state} tuple(j, b)
            }}
            again {{
              s = {state} parameter(0)
              i = s32[] get-tuple-element(s), index=0
              n = s32[] constant(3)
              ROOT c = pred[] compare(i, n), direction=LT
            }}
        """),
        by_replica,
    ]  # fmt: skip
