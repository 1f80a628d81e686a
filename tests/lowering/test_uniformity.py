"""Which computations all devices enter together: every rule in both directions, then what JAX prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_cp2ag.ir.module import HloModule
from hlo_cp2ag.ir.source import HloSyntaxError
from hlo_cp2ag.lowering.uniform_operations import _plain_operands, index_of, parameter_number
from hlo_cp2ag.lowering.uniformity import Arrival, Uniformity
from hlo_cp2ag.text.parser import parse

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "jax"

# ---- values ----------------------------------------------------------------------------------------------------------

HELPERS = """
add {
  add.x = s32[] parameter(0)
  add.y = s32[] parameter(1)
  ROOT add.r = s32[] add(add.x, add.y)
}

strange {
  strange.x = s32[] parameter(0)
  strange.y = s32[] parameter(1)
  strange.me = u32[] partition-id()
  ROOT strange.r = s32[] convert(strange.me)
}

both {
  both.x = s32[] parameter(0)
  both.y = s32[] parameter(1)
  ROOT both.r = (s32[], s32[]) tuple(both.y, both.x)
}

gathers {
  gathers.x = s32[] parameter(0)
  ROOT gathers.r = s32[] all-reduce(gathers.x), channel_id=9, replica_groups=[1,4]<=[4], use_global_device_ids=true,
    to_apply=add
}

same {
  ROOT same.x = s32[] parameter(0)
}

twice {
  twice.x = s32[] parameter(0)
  ROOT twice.r = s32[] add(twice.x, twice.x)
}

more {
  more.p = (s32[], s32[], s32[], s32[]) parameter(0)
  more.i = s32[] get-tuple-element(more.p), index=0
  more.a = s32[] get-tuple-element(more.p), index=1
  more.b = s32[] get-tuple-element(more.p), index=2
  more.c = s32[] get-tuple-element(more.p), index=3
  more.one = s32[] constant(1)
  more.n = s32[] add(more.i, more.one)
  ROOT more.r = (s32[], s32[], s32[], s32[]) tuple(more.n, more.b, more.b, more.c)
}

short {
  short.p = (s32[], s32[], s32[], s32[]) parameter(0)
  short.i = s32[] get-tuple-element(short.p), index=0
  short.n = s32[] constant(3)
  ROOT short.r = pred[] compare(short.i, short.n), direction=LT
}

short_by_data {
  sd.p = (s32[], s32[], s32[], s32[]) parameter(0)
  sd.i = s32[] get-tuple-element(sd.p), index=0
  sd.n = s32[] get-tuple-element(sd.p), index=2
  ROOT sd.r = pred[] compare(sd.i, sd.n), direction=LT
}
"""


def value_is_uniform(
    lines: str, replica_count: int = 1, num_partitions: int = 4, *, flat_replica_id: bool = False
) -> bool:
    """Whether the last of `lines` is proved uniform; `k` is a constant, `v` varies, `p` holds all of them."""
    body = "\n".join("  " + line.strip() for line in lines.strip().split("\n"))
    text = f"""HloModule values
{HELPERS}
ENTRY main {{
  v = s32[] parameter(0)
  rep = s32[] parameter(1), sharding={{replicated}}
  k = s32[] constant(2)
  yes = pred[] constant(true)
  p = (s32[], s32[]) tuple(k, v)
{body}
}}
"""
    module = parse(text)
    uniformity = Uniformity(module, replica_count, num_partitions, flat_replica_id=flat_replica_id)
    return uniformity.is_uniform(module.entry.table.instruction(len(module.entry) - 1))


GROUP = "to_apply=add, channel_id=1, use_global_device_ids=true, replica_groups"

UNIFORM = [
    "a = s32[] constant(7)",
    "a = s32[100] constant({...})",
    "a = s32[5] iota(), iota_dimension=0",
    "a = s32[] add(k, k)",
    "a = s32[] add(s32[] k, s32[] %k)",
    "a = s32[] get-tuple-element(p), index=0",
    "a = s32[] get-tuple-element((s32[], s32[]) p), index=0",
    "q = ((s32[], s32[]), s32[]) tuple(p, v)\nb = (s32[], s32[]) get-tuple-element(q), index=0\n"
    "a = s32[] get-tuple-element(b), index=0",
    "q = (s32[], s32[]) opt-barrier(p)\na = s32[] get-tuple-element(q), index=0",
    "q = (s32[], s32[]) copy(p)\nb = s32[] get-tuple-element(q), index=0\na = s32[1] bitcast(b)",
    "t = token[] after-all()\nq = (s32[], s32[]) add-dependency(p, t)\na = s32[] get-tuple-element(q), index=0",
    "b = s32[4] broadcast(k), dimensions={}\na = s32[] reduce(b, k), dimensions={0}, to_apply=add",
    "b = s32[4] broadcast(k), dimensions={}\na = s32[4] sort(b), dimensions={0}, to_apply=add",
    "s = u64[2] constant({1, 2})\nb = (u64[2], u32[4]) rng-bit-generator(s), algorithm=rng_philox\n"
    "a = u32[4] get-tuple-element(b), index=1",
    "me = u32[] replica-id()",
    "a = s32[] get-dimension-size(k), dimensions={0}",
    "t = token[] after-all()\na = token[] after-all(t)",
    # calls, followed element by element
    "a = s32[] call(k, k), to_apply=add",
    "q = (s32[], s32[]) call(v, k), to_apply=both\na = s32[] get-tuple-element(q), index=0",
    "q = (s32[], s32[]) fusion(v, k), kind=kLoop, calls=both\na = s32[] get-tuple-element(q), index=0",
    "b = s32[] call(v, v), to_apply=add\na = s32[] call(k, k), to_apply=add",
    "a = s32[] call(v), to_apply=gathers",
    "s = ((s32[], s32[]), (s32[], s32[]), u32[]) async-start(v, k), calls=both\n"
    "u = ((s32[], s32[]), (s32[], s32[]), u32[]) async-update(s)\n"
    "d = (s32[], s32[]) async-done(u)\na = s32[] get-tuple-element(d), index=0",
    "s = ((s32[], s32[]), s32[], u32[]) add-start(k, k)\na = s32[] add-done(s)",
    "s = (s32[], s32[], u32[]) copy-start(k)\na = s32[] copy-done(s)",
    # conditionals
    "a = s32[] conditional(yes, k, k), true_computation=same, false_computation=twice",
    "a = s32[] conditional(k, k, v), branch_computations={same, gathers}",
    "a = s32[] conditional(k, k, v), branch_computations={same, /*index=1*/ gathers}",
    # all devices in one group
    f"a = s32[] all-reduce(v), {GROUP}={{{{0,1,2,3}}}}",
    f"a = s32[] all-reduce(v), {GROUP}={{{{3,1,2,0}}}}",
    f"a = s32[] all-reduce(v), {GROUP}=[1,4]<=[4]",
    f"a = s32[] all-reduce(v), {GROUP}=[1,4]<=[2,2]T(1,0)",
    f"a = s32[] all-reduce(v), {GROUP}=mesh['x'=2,'y'=2] {{'x','y'}}",
    "a = s32[] all-reduce(v), to_apply=add, channel_id=1",
    "a = s32[] all-reduce(v), to_apply=add, channel_id=1, replica_groups={{0}}",
    "q = (s32[], s32[]) all-reduce(v, v), to_apply=add, channel_id=1, replica_groups={}\n"
    "a = s32[] get-tuple-element(q), index=1",
    "s = s32[] all-reduce-start(v), to_apply=add, channel_id=1, replica_groups={}\na = s32[] all-reduce-done(s)",
    "b = s32[1] reshape(v)\na = s32[4] all-gather(b), dimensions={0}, channel_id=1, replica_groups={{0,1,2,3}}, "
    "use_global_device_ids=true",
    "b = s32[1] reshape(v)\ns = (s32[1], s32[4]) all-gather-start(b), dimensions={0}, channel_id=1, replica_groups={}\n"
    "a = s32[4] all-gather-done(s)",
    # the partitioner's promise
    "a = s32[] negate(rep)",
]

VARIES = [
    "a = s32[] negate(v)",
    "a = s32[] add(k, v)",
    "a = s32[] add(s32[] k, s32[] %v)",
    "a = s32[] add(k, s32[] negate(k))",
    "a = s32[] get-tuple-element(p), index=1",
    "q = ((s32[], s32[]), s32[]) tuple(p, k)\nb = (s32[], s32[]) get-tuple-element(q), index=0\n"
    "a = s32[] get-tuple-element(b), index=1",
    "q = (s32[], s32[]) opt-barrier(p)\na = s32[] get-tuple-element(q), index=1",
    "a = (s32[], s32[]) copy(p)",
    "b = s32[4] broadcast(k), dimensions={}\na = s32[] reduce(b, v), dimensions={0}, to_apply=add",
    "b = s32[4] broadcast(k), dimensions={}\na = s32[] reduce(b, k), dimensions={0}, to_apply=strange",
    "b = s32[4] broadcast(k), dimensions={}\ns = ((s32[4], s32[]), s32[], u32[]) reduce-start(b, k), dimensions={0}, "
    "to_apply=strange\na = s32[] reduce-done(s)",
    "b = s32[4] iota(), iota_dimension=0\na = s32[1] dynamic-slice(b, v), dynamic_slice_sizes={1}",
    "s = u64[] convert(v)\nb = (u64[], u32[4]) rng-bit-generator(s), algorithm=rng_philox\n"
    "a = u32[4] get-tuple-element(b), index=1",
    "a = s32[] rng(k, k), distribution=rng_uniform",
    "a = u64[] rng-get-and-update-state(), delta=1",
    "me = u32[] partition-id()",
    "t = token[] after-all()\nb = (s32[], token[]) infeed(t)\na = s32[] get-tuple-element(b), index=0",
    "t = token[] after-all()\nr = (s32[], u32[], token[]) recv(t), channel_id=1\n"
    "b = (s32[], token[]) recv-done(r), channel_id=1\na = s32[] get-tuple-element(b), index=0",
    'a = s32[] custom-call(k), custom_call_target="what"',
    "a = s32[] an-opcode-of-tomorrow(k)",
    "a = s32[] call(v, k), to_apply=add",
    "a = s32[] call(k, k), to_apply=strange",
    "q = (s32[], s32[]) call(v, k), to_apply=both\na = s32[] get-tuple-element(q), index=1",
    "q = (s32[], s32[]) fusion(v, k), kind=kLoop, calls=both\na = s32[] get-tuple-element(q), index=1",
    "s = ((s32[], s32[]), (s32[], s32[]), u32[]) async-start(v, k), calls=both\n"
    "d = (s32[], s32[]) async-done(s)\na = s32[] get-tuple-element(d), index=1",
    "s = ((s32[], s32[]), s32[], u32[]) add-start(k, v)\na = s32[] add-done(s)",
    "s = ((s32[4]), s32[4], u32[]) all-to-all-start(k), dimensions={0}\na = s32[4] all-to-all-done(s)",
    "s = (s32[], s32[], u32[]) copy-start(v)\na = s32[] copy-done(s)",
    "a = (s32[], s32[], u32[]) copy-start(k)",
    "b = pred[] compare(k, v), direction=LT\n"
    "a = s32[] conditional(b, k, k), true_computation=same, false_computation=same",
    "a = s32[] conditional(yes, v, k), true_computation=same, false_computation=same",
    "a = s32[] conditional(yes, k, v), true_computation=same, false_computation=same",
    "a = s32[] conditional(k, v, v), branch_computations={same, gathers}",
    # permutes and the like, even of what is uniform: who receives nothing holds zeros
    "a = s32[] collective-permute(k), channel_id=1, source_target_pairs={{0,1}}",
    "s = (s32[], s32[]) collective-permute-start(k), channel_id=1, source_target_pairs={{0,1}}\n"
    "a = s32[] collective-permute-done(s)",
    "b = s32[4] broadcast(k), dimensions={}\na = s32[4] all-to-all(b), dimensions={0}, channel_id=1",
    "b = s32[4] broadcast(k), dimensions={}\na = s32[1] reduce-scatter(b), dimensions={0}, " + GROUP + "={{0,1,2,3}}",
    "a = s32[] collective-broadcast(v), channel_id=1, replica_groups={{0,1,2,3}}",
    # groups that leave devices out
    f"a = s32[] all-reduce(v), {GROUP}={{{{0,1}},{{2,3}}}}",
    f"a = s32[] all-reduce(v), {GROUP}=[2,2]<=[4]",
    f"a = s32[] all-reduce(v), {GROUP}=mesh['x'=2,'y'=2] {{'y'}}",
    f"a = s32[] all-reduce(v), {GROUP}={{{{0,1,2}}}}",
    "a = s32[] all-reduce(v), to_apply=add",
    "a = s32[] all-reduce(v), to_apply=add, replica_groups={{0}}",
    "a = s32[] all-reduce(v), to_apply=add, replica_groups={{0,1,2,3}}",
    "a = s32[] all-reduce(v), to_apply=add, channel_id=0, replica_groups={}",
    "s = s32[] all-reduce-start(v), to_apply=add\na = s32[] all-reduce-done(s)",
]


@pytest.mark.parametrize("lines", UNIFORM)
def test_uniform_values(lines: str) -> None:
    assert value_is_uniform(lines)


@pytest.mark.parametrize("lines", VARIES)
def test_values_that_may_vary(lines: str) -> None:
    assert not value_is_uniform(lines)


@pytest.mark.parametrize("lines", VARIES)
def test_on_one_device_nothing_varies(lines: str) -> None:
    assert value_is_uniform(lines, 1, 1)


@pytest.mark.parametrize(
    ("grid", "replicas", "partitions"), [((4, 1), False, True), ((1, 4), True, False), ((2, 2), False, False)]
)
def test_which_id_counts_depends_on_the_grid(grid: tuple[int, int], replicas: bool, partitions: bool) -> None:
    assert value_is_uniform("a = u32[] replica-id()", *grid) is replicas
    assert value_is_uniform("a = u32[] partition-id()", *grid) is partitions


def test_a_flat_replica_id_counts_partitions_too() -> None:
    assert not value_is_uniform("a = u32[] replica-id()", 1, 4, flat_replica_id=True)


@pytest.mark.parametrize(
    ("attributes", "grids"),
    [
        ("", [(4, 1)]),
        ("replica_groups={}", [(4, 1)]),
        ("replica_groups={{0,1,2,3}}", [(4, 1)]),
        ("replica_groups={{0,1}}", []),
        ("channel_id=1", [(4, 1), (1, 4), (2, 2)]),
        ("channel_id=1, replica_groups={{0,1}}", [(2, 2)]),
        ("channel_id=1, replica_groups={{0},{1}}", []),
        ("channel_id=1, replica_groups={{0}}", [(1, 4)]),
        ("channel_id=1, replica_groups={{0,1,2,3}}", [(4, 1)]),
        ("channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true", [(4, 1), (1, 4), (2, 2)]),
        ("channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=false", [(4, 1)]),
        ("channel_id=1, replica_groups={}, use_global_device_ids=true", []),
        ("replica_groups={{0,1,2,3}}, use_global_device_ids=true", []),
    ],
)
def test_group_modes(attributes: str, grids: list[tuple[int, int]]) -> None:
    line = f"a = s32[] all-reduce(v), to_apply=add{', ' if attributes else ''}{attributes}"
    assert [grid for grid in [(4, 1), (1, 4), (2, 2)] if value_is_uniform(line, *grid)] == grids


@pytest.mark.parametrize(
    ("sharding", "grid", "expected"),
    [
        ("{replicated}", (1, 4), True),
        ("{replicated}", (4, 1), False),
        ("{replicated}", (2, 2), False),
        ("{maximal device=0}", (1, 4), False),
        ("{devices=[4]<=[4]}", (1, 4), False),
        ("{devices=[1,4]<=[4] last_tile_dim_replicate}", (1, 4), False),
        ("{manual}", (1, 4), False),
    ],
)
def test_replicated_parameters_of_the_entry(sharding: str, grid: tuple[int, int], expected: bool) -> None:
    module = parse(f"HloModule m\n\nENTRY e {{\n  ROOT p = s32[] parameter(0), sharding={sharding}\n}}\n")
    assert Uniformity(module, *grid).is_uniform(module.entry.root) is expected


@pytest.mark.parametrize(
    ("condition", "inits", "uniform"),
    [
        ("short", "k k k k", [0, 1, 2, 3]),
        ("short", "k v k k", [0, 2, 3]),  # element 1 becomes element 2, and is its own only before the first iteration
        ("short", "k k v k", [0, 3]),  # element 2 flows into element 1
        ("short", "k k k v", [0, 1, 2]),
        ("short", "v k k k", [2, 3]),  # how often differs: what the body hands on as it is stays
        ("short_by_data", "k k v k", [3]),
        ("short_by_data", "k v k k", [0, 2, 3]),
    ],
)
def test_results_of_a_while_element_by_element(condition: str, inits: str, uniform: list[int]) -> None:
    start = f"""
        q = (s32[], s32[], s32[], s32[]) tuple({inits.replace(" ", ", ")})
        w = (s32[], s32[], s32[], s32[]) while(q), condition={condition}, body=more
    """
    found = [i for i in range(4) if value_is_uniform(f"{start}\n a = s32[] get-tuple-element(w), index={i}")]
    assert found == uniform


@pytest.mark.parametrize(
    "line",
    [
        'a = s32[] add (%v, %v), metadata={op_name=" add(%k, %k)"}',
        'a = s32[] add(s32[] %v, %v), metadata={op_name=" add(%k, %k)"}',
        "a = s32[] /* add(%k, %k) */ add(%v, %v)",
        "a = s32[] add(/*k*/ %v, %v)",
        'a = s32[] get-tuple-element((s32[], s32[]) %p), index=1, metadata={op_name=" get-tuple-element(%p), index=0"}',
        "a = s32[] get-tuple-element(%p), metadata={}, index=1",
    ],
)
def test_operands_in_odd_writing(line: str) -> None:
    assert not value_is_uniform(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a = s32[] negate(nobody)", "undefined operand 'nobody'"),
        ("a = s32[] call(k), to_apply=nothing", "undefined computation 'nothing'"),
        (f"a = s32[] all-reduce(v), {GROUP}=[1,4]<=[5]", "does not hold 5 devices"),
        ("a = s32[] call(k)", "call names no computation"),
        ("q = (s32[]) tuple(k)\na = s32[] get-tuple-element(q), index=1", "tuple has 1 operands, expects number 2"),
    ],
)
def test_what_cannot_be_followed_is_refused(line: str, message: str) -> None:
    with pytest.raises(HloSyntaxError, match=message):
        value_is_uniform(line)


def test_deep_graphs_need_no_recursion() -> None:
    depth = 20_000
    chain = "\n".join(f"c{i + 1} = s32[] add(c{i}, c{i})" for i in range(depth))
    assert value_is_uniform(f"c0 = s32[] copy(k)\n{chain}")
    assert not value_is_uniform(f"c0 = s32[] copy(v)\n{chain}")


# ---- arrivals --------------------------------------------------------------------------------------------------------


def arrival(text: str, name: str, replica_count: int = 1, num_partitions: int = 4) -> Arrival:
    module = parse(text)
    computation = module.computation(name)
    assert computation is not None
    return Uniformity(module, replica_count, num_partitions).arrival(computation)


def callers(found: Arrival) -> list[str]:
    return [instruction.name for instruction in found.through]


BRANCHES = """HloModule branches

taken {{
  x = f32[2] parameter(0)
  ROOT cp = f32[2] collective-permute(x), channel_id=1, source_target_pairs={{{{0,1}}}}
}}

other {{
  ROOT y = f32[2] parameter(0)
}}

ENTRY main {{
  a = f32[2] parameter(0)
  b = pred[] parameter(1)
  n = s32[] constant(1)
  me = u32[] partition-id()
  zero = u32[] constant(0)
  first = pred[] compare(me, zero), direction=EQ
  always = pred[] constant(true)
  ROOT c = f32[2] conditional({predicate}, a, a), {branches}
}}
"""
BOTH = "true_computation=taken, false_computation=other"


def test_the_entry_is_entered_by_all() -> None:
    assert arrival(BRANCHES.format(predicate="b", branches=BOTH), "main") == Arrival(True)


def test_a_conditional_on_the_device() -> None:
    found = arrival(BRANCHES.format(predicate="first", branches=BOTH), "taken")
    assert not found.together
    assert found.reason == "the predicate of %c (line 20) depends on partition-id"
    assert callers(found) == ["c"]


def test_a_conditional_on_a_parameter() -> None:
    found = arrival(BRANCHES.format(predicate="b", branches=BOTH), "taken")
    assert found.reason == "the predicate of %c (line 20) depends on parameter 1 of the entry"


def test_a_conditional_on_a_constant() -> None:
    found = arrival(BRANCHES.format(predicate="always", branches=BOTH), "taken")
    assert found.together and not found.reason and callers(found) == ["c"]


def test_a_conditional_by_index() -> None:
    listed = "branch_computations={other, taken}"
    assert arrival(BRANCHES.format(predicate="n", branches=listed), "taken").together
    found = arrival(BRANCHES.replace("u32", "s32").format(predicate="me", branches=listed), "taken")
    assert found.reason == "the branch index of %c (line 20) depends on partition-id"


def test_an_only_replica_decides_alike_everywhere() -> None:
    text = BRANCHES.replace("partition-id", "replica-id").format(predicate="first", branches=BOTH)
    assert arrival(text, "taken", 1, 4).together
    assert not arrival(text, "taken", 4, 1).together
    assert arrival(text, "taken", 1, 1).together


def test_the_promise_of_the_partitioner_is_for_one_replica() -> None:
    text = BRANCHES.replace("parameter(1)", "parameter(1), sharding={{replicated}}").format(
        predicate="b", branches=BOTH
    )
    assert arrival(text, "taken", 1, 4).together
    assert not arrival(text, "taken", 2, 4).together


LOOP = """HloModule loop

body {{
  p = (s32[], f32[2], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[2] get-tuple-element(p), index=1
  j = s32[] get-tuple-element(p), index=2
  one = s32[] constant(1)
  up = s32[] add(i, one)
  cp = f32[2] collective-permute(x), channel_id=1, source_target_pairs={{{{0,1}}}}
  big = s32[] convert(x)
  all = s32[] all-reduce(big), channel_id=2, to_apply=sum
  ROOT r = (s32[], f32[2], s32[]) tuple({next})
}}

sum {{
  l = s32[] parameter(0)
  m = s32[] parameter(1)
  ROOT s = s32[] add(l, m)
}}

cond {{
  q = (s32[], f32[2], s32[]) parameter(0)
  k = s32[] get-tuple-element(q), index=0
  n = s32[] {limit}
  ROOT t = pred[] compare(k, n), direction=LT
}}

ENTRY main {{
  a = f32[2] parameter(0)
  v = s32[] parameter(1)
  zero = s32[] constant(0)
  in = (s32[], f32[2], s32[]) tuple({init}, a, v)
  ROOT w = (s32[], f32[2], s32[]) while(in), condition=cond, body=body
}}
"""
COUNT = "constant(5)"


@pytest.mark.parametrize(
    ("init", "step", "limit", "reason"),
    [
        ("zero", "up, cp, j", COUNT, ""),
        ("v", "up, cp, j", COUNT, "parameter 1 of the entry"),
        ("zero", "up, cp, j", "get-tuple-element(q), index=2", "parameter 1 of the entry"),
        ("zero", "all, cp, j", COUNT, ""),  # a reduction over all devices
        ("zero", "big, x, j", COUNT, "parameter 0 of the entry"),
        ("zero", "big, cp, j", COUNT, "the collective-permute %cp (line 10)"),
        ("zero", "j, cp, j", COUNT, "parameter 1 of the entry"),  # from the second iteration on
        ("zero", "j, cp, up", COUNT, "parameter 1 of the entry"),
        ("zero", "up, cp, j", "partition-id()", "partition-id"),
    ],
)
@pytest.mark.parametrize("computation", ["body", "cond"])
def test_loops(computation: str, init: str, step: str, limit: str, reason: str) -> None:
    found = arrival(LOOP.format(init=init, next=step, limit=limit), computation)
    assert found.together is (reason == "")
    assert found.reason == (f"the condition of %w (line 34) depends on {reason}" if reason else "")
    assert callers(found) == ["w"]


def test_a_permuted_counter_varies() -> None:
    text = LOOP.format(init="zero", next="up, cp, j", limit=COUNT).replace(
        "up = s32[] add(i, one)",
        "wrong = s32[] collective-permute(i), channel_id=7, source_target_pairs={{0,1}}\n  up = s32[] add(wrong, one)",
    )
    found = arrival(text, "body")
    assert found.reason == "the condition of %w (line 35) depends on the collective-permute %wrong (line 9)"


NESTED = """HloModule nested

hop {
  x = f32[2] parameter(0)
  ROOT cp = f32[2] collective-permute(x), channel_id=1, source_target_pairs={{0,1}}
}

stay {
  ROOT y = f32[2] parameter(0)
}

inner {
  p = (pred[], pred[], f32[2]) parameter(0)
  go = pred[] get-tuple-element(p), index=0
  z = f32[2] get-tuple-element(p), index=2
  f = f32[2] fusion(z), kind=kLoop, calls=stay
  ROOT c = f32[2] conditional(go, f, f), true_computation=hop, false_computation=stay
}

ENTRY main {
  a = f32[2] parameter(0)
  b = pred[] parameter(1)
  yes = pred[] constant(true)
  t = (pred[], pred[], f32[2]) tuple(yes, b, a)
  ROOT outer = f32[2] call(t), to_apply=inner
}
"""


def test_a_predicate_is_followed_through_the_caller() -> None:
    found = arrival(NESTED, "hop")
    assert found.together and callers(found) == ["outer", "c"]
    swapped = arrival(NESTED.replace("tuple(yes, b, a)", "tuple(b, yes, a)"), "hop")
    assert swapped.reason == "the predicate of %c (line 17) depends on parameter 1 of the entry"
    assert callers(swapped) == ["outer", "c"]


def test_every_caller_must_bring_all() -> None:
    text = NESTED.replace(
        "  ROOT outer = f32[2] call(t), to_apply=inner",
        "  u = (pred[], pred[], f32[2]) tuple(b, b, a)\n  o = f32[2] call(t), to_apply=inner\n"
        "  ROOT outer = f32[2] call(u), to_apply=inner",
    )
    assert not arrival(text, "hop").together
    assert arrival(text, "inner").together


def test_what_only_some_enter_is_not_entered_by_all_further_in() -> None:
    text = NESTED.replace(
        "  ROOT outer = f32[2] call(t), to_apply=inner",
        "  ROOT outer = f32[2] conditional(b, t, a), true_computation=inner, false_computation=stay",
    )
    found = arrival(text, "hop")
    assert found.reason == "the predicate of %outer (line 25) depends on parameter 1 of the entry"
    assert callers(found) == ["outer", "c"]


def test_nobody_calls() -> None:
    text = NESTED.replace("ROOT outer = f32[2] call(t), to_apply=inner", "ROOT outer = f32[2] copy(a)")
    for name in ("inner", "hop"):
        assert arrival(text, name) == Arrival(True, f"computation {name} is never entered: no call leads to it")


def test_a_dead_caller_does_not_count() -> None:
    text = NESTED.replace("tuple(yes, b, a)", "tuple(yes, b, a)").replace(
        "ENTRY", "dead {\n  d = (pred[], pred[], f32[2]) parameter(0)\n  e = f32[2] call(d), to_apply=inner\n}\n\nENTRY"
    )
    assert arrival(text, "hop").together


CALLS = {
    "c = f32[2] call(a), to_apply=hop": True,
    "c = f32[2] fusion(a), kind=kLoop, calls=hop": True,
    "c = ((f32[2]), f32[2], u32[]) async-start(a), calls=hop\n  d = f32[2] async-done(c), calls=hop": True,
    "c = ((f32[2]), f32[2], u32[]) call-start(a), to_apply=hop\n  d = f32[2] call-done(c)": True,
    "c = f32[2] map(a), dimensions={0}, to_apply=hop": True,
    'c = f32[2] custom-call(a), custom_call_target="x", called_computations={hop}': False,
    'c = f32[2] custom-call(a), custom_call_target="x", to_apply=hop': False,
    "c = f32[2] sort(a), dimensions={0}, to_apply=hop": False,
    "c = ((f32[2]), f32[2], u32[]) sort-start(a), dimensions={0}, to_apply=hop\n  d = f32[2] sort-done(c)": False,
    "c = f32[2] select-and-scatter(a, a, a), select=stay, scatter=hop": False,
}


@pytest.mark.parametrize("line", CALLS)
def test_who_enters_what_it_calls_as_often_as_it_runs(line: str) -> None:
    text = NESTED.replace("ROOT outer = f32[2] call(t), to_apply=inner", line)
    found = arrival(text, "hop")
    assert found.together is CALLS[line]
    assert callers(found) == ["c"]
    if not found.together:
        assert found.reason.startswith("computation hop is called by the ") and "%c (line 25)" in found.reason


def test_names_in_strings_and_comments_call_nobody() -> None:
    text = NESTED.replace(
        "  yes = pred[] constant(true)\n",
        "  /* bad = f32[2] custom-call(a), to_apply=hop */\n"
        '  yes = pred[] constant(true), metadata={op_name=", calls=hop"}\n',
    )
    assert arrival(text, "hop").together


def test_computations_written_out_in_place() -> None:
    text = """HloModule inline

ENTRY main {
  a = f32[2] parameter(0)
  b = pred[] parameter(1)
  yes = pred[] constant(true)
  c = f32[2] conditional(WHICH, a, a), true_computation={
    x = f32[2] parameter(0)
    ROOT cp = f32[2] collective-permute(x), channel_id=1, source_target_pairs={{0,1}}
  }, false_computation={ ROOT y = f32[2] parameter(0) }
  ROOT d = f32[2] conditional(yes, c, a), true_computation={ ROOT y = f32[2] parameter(0) }, false_computation={
    ROOT n = f32[2] negate(f32[2] parameter(0)) }
}
"""
    for which, together in (("yes", True), ("b", False)):
        module = parse(text.replace("WHICH", which))
        uniformity = Uniformity(module, 1, 4)
        found = [uniformity.arrival(c) for c in module.computations if c.is_inline]
        assert [a.together for a in found].count(False) == (0 if together else 2)
        assert {callers(a)[0] for a in found} == {"c", "d"}


def test_recursion_ends() -> None:
    text = NESTED.replace("y = f32[2] parameter(0)", "y = f32[2] call(y0), to_apply=stay").replace(
        "stay {", "stay {\n  y0 = f32[2] parameter(0)"
    )
    found = arrival(text, "stay")
    assert not found.together
    assert found.reason == "computation stay calls itself"
    rings = """HloModule rings

f {
  x = pred[] parameter(0)
  ROOT r = pred[] call(x), to_apply=g
}

g {
  y = pred[] parameter(0)
  ROOT s = pred[] call(y), to_apply=f
}

h {
  ROOT z = pred[] parameter(0)
}

ENTRY main {
  a = pred[] constant(true)
  b = pred[] call(a), to_apply=f
  ROOT c = pred[] conditional(b, a, a), true_computation=h, false_computation=h
}
"""
    assert not arrival(rings, "f").together
    assert not arrival(rings, "g").together
    assert arrival(rings, "h").reason == "the predicate of %c (line 20) depends on a computation that calls itself"


def test_depth_of_calls_needs_no_recursion() -> None:
    depth = 3_000
    functions = "".join(
        f"f{i} {{\n  x{i} = pred[] parameter(0)\n  ROOT r{i} = pred[] conditional(x{i}, x{i}, x{i}), "
        f"true_computation=f{i - 1}, false_computation=f{i - 1}\n}}\n\n"
        for i in range(1, depth)
    )
    text = (
        f"HloModule deep\n\nf0 {{\n  ROOT x0 = pred[] parameter(0)\n}}\n\n{functions}"
        f"ENTRY main {{\n  a = pred[] constant(true)\n  ROOT b = pred[] call(a), to_apply=f{depth - 1}\n}}\n"
    )
    found = arrival(text, "f0")
    assert found.together and len(found.through) == depth
    assert not arrival(text.replace("constant(true)", "parameter(0)"), "f0").together


def test_only_the_slice_that_matters_is_read() -> None:
    text = BRANCHES.format(predicate="always", branches=BOTH).replace(
        "  n = s32[] constant(1)\n", "  n = s32[] constant(1)\n  bad = f32[2] add(nobody, nothing)\n"
    )
    assert arrival(text, "taken").together


# ---- the corpus ------------------------------------------------------------------------------------------------------

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus at {CORPUS}")


def read(name: str, text: str) -> tuple[HloModule, int, int]:
    meta = json.loads((CORPUS / name / "meta.json").read_text())
    path = CORPUS / name / f"{text}.hlo"
    return parse(path.read_text(), str(path)), meta["replica_count"], meta["num_partitions"]


def permuting(module: HloModule, uniformity: Uniformity) -> dict[str, Arrival]:
    kinds = ("collective-permute", "collective-permute-start")
    return {c.name: uniformity.arrival(c) for c in module.computations if any(i.opcode in kinds for i in c)}


# Read in the modules: which opcodes lead to the permutes. Loop counters start at constants and grow by constants; the
# predicates of conditionals are computed from them; jacobi_while stops by an all-reduce over all eight devices; the
# trees, rings and matmuls that are not here have their permutes in the entry, or in what the entry calls.
WHILES = {
    "auto_scan_roll": [["while"]],
    "cannon_2x4": [["while"], []],
    "cond_no_permute_branch": [["while", "conditional", "conditional"], ["while", "conditional"]],
    "game_of_life": [["while"]],
    "hessian_vector_ring": [["while"], ["while"]],
    "jacobi_while": [["while"]],
    "nested_while": [["while", "while"], ["while"]],
    "pipeline_gpipe_grad": [["while"], ["while"]],
    "ring_all_reduce_fori": [["while"], ["while"]],
    "ring_attention_causal_bf16": [["while"]],
    "ring_attention_f32": [["while"]],
    "ring_attention_grad": [["while"], ["while"]],
    "ring_double_buffered": [["while"], []],
    "ring_gather_embedding": [["while"]],
    "ring_grad_sync": [["while"]],
    "ring_quantized_all_reduce": [["while"]],
    "ring_reduce_scatter": [["while"]],
    "switch_uniform": [["while", "conditional"]] * 4,
    "hlo_call_fusion": [["call", "call"], ["call"], []],
}
FILES = [(p.parent.name, p.stem) for p in sorted(CORPUS.glob("*/*.hlo"))] or [("none", "none")]


@needs_corpus
@pytest.mark.parametrize(("name", "text"), FILES)
def test_arrivals_in_the_corpus(name: str, text: str) -> None:
    module, replica_count, num_partitions = read(name, text)
    found = permuting(module, Uniformity(module, replica_count, num_partitions))
    assert found and all(a.together and not a.reason for a in found.values())
    ways = [[i.opcode for i in a.through] for a in found.values()]
    if text == "after_spmd":  # not inlined yet: shard_map's body is a computation that the entry calls
        ways = [way[1:] if way[:1] == ["call"] else way for way in ways]
    assert sorted(ways) == sorted(WHILES.get(name, [[]]))


@needs_corpus
@pytest.mark.parametrize(("name", "text"), FILES)
def test_the_short_way_to_operands_reads_what_the_long_way_reads(name: str, text: str) -> None:
    module, _, _ = read(name, text)
    for instruction in module.instructions():
        plain, body = _plain_operands(instruction), instruction.body
        if instruction.opcode == "parameter":
            start, end = body.operands_span
            assert parameter_number(instruction) == int(module.text[start:end])
        elif instruction.opcode != "constant" and plain is not None:
            assert plain == [operand.name for operand in body.operands]
        if instruction.opcode == "get-tuple-element":
            index = instruction.attribute_text("index")
            assert index is not None and index_of(instruction) == int(index.value_text)


@needs_corpus
@pytest.mark.parametrize("text", ["after_spmd", "pre_scheduler", "final"])
def test_a_residual_over_eight_of_sixteen_devices(text: str) -> None:
    """jacobi_while on a grid with two replicas: its all-reduce then leaves half of the devices out."""
    module, _, num_partitions = read("jacobi_while", text)
    for replica_count, together in ((1, True), (2, False)):
        [found] = permuting(module, Uniformity(module, replica_count, num_partitions)).values()
        assert found.together is together
    assert "the condition of %while" in found.reason and "depends on the all-reduce %" in found.reason


@needs_corpus
@pytest.mark.parametrize("text", ["after_spmd", "pre_scheduler", "final"])
@pytest.mark.parametrize("name", ["cond_no_permute_branch", "switch_uniform", "nested_while"])
def test_a_counter_that_starts_at_the_device(name: str, text: str) -> None:
    """The same modules, with each initial counter replaced by something that differs between devices."""
    module, replica_count, num_partitions = read(name, text)
    source = module.text
    assert "s32[] constant(0)" in source
    changed = parse(source.replace("s32[] constant(0)", 's32[] custom-call(), custom_call_target="where"'))
    found = permuting(changed, Uniformity(changed, replica_count, num_partitions))
    assert found and not any(a.together for a in found.values())
    assert all("depends on the custom-call %" in a.reason for a in found.values())


@needs_corpus
def test_replicated_is_printed_on_what_nobody_annotated() -> None:
    """XLA's partitioner marks hand-written parameters as replicated; with several replicas that proves nothing."""
    module, replica_count, num_partitions = read("hlo_r2p2", "final")
    parameter = next(i for i in module.entry if i.opcode == "parameter")
    assert "sharding={replicated}" in parameter.text
    assert not Uniformity(module, replica_count, num_partitions).is_uniform(parameter)
    assert Uniformity(module, 1, num_partitions).is_uniform(parameter)
