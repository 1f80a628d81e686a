"""The smallest pairs of what random modules and mutants have found in verify, each held for good."""

from __future__ import annotations

from hlo_cp2ag.executor.run import run
from hlo_cp2ag.text.parser import parse
from hlo_cp2ag.verify.report import Verdict
from hlo_cp2ag.verify.verification import verify

from .forms import module_text, tidy

P = "p = f32[2] parameter(0)"
HEADER = "HloModule m, replica_count=1, num_partitions=4"


def verdict(before: list[str], after: list[str], helpers: tuple[str, str] = ("", ""), header: str = HEADER) -> Verdict:
    modules = [
        parse(module_text(header, body, tidy(helper) if helper else ""), name)
        for body, helper, name in zip((before, after), helpers, ("before.hlo", "after.hlo"), strict=True)
    ]
    return verify(*modules, run=False)


def test_an_instruction_that_nothing_hangs_on_has_to_be_one() -> None:
    good = [P, "ROOT r = f32[2] copy(p)"]
    assert verdict(good, [P, "i = u32[] constant(1)", "ROOT r = f32[2] copy(p)"]).proved
    wrong = [P, "i = u32[] constant(1)", "j = u64[] multiply(i, i)", "ROOT r = f32[2] copy(p)"]
    assert not verdict(good, wrong).proved


def test_an_index_that_is_clamped_to_zero_has_to_be_one() -> None:
    slice_it = "ROOT r = f32[2] dynamic-slice(p, j), dynamic_slice_sizes={2}"
    wrong = [P, "i = u32[] constant(1)", "j = u64[] multiply(i, i)", slice_it]
    assert not verdict([P, "ROOT r = f32[2] copy(p)"], wrong).proved


BRANCHES = """
    taken {{
      a = f32[2] parameter(0)
      {lines}
    }}
    left {{
      a = f32[2] parameter(0)
      ROOT r = f32[2] negate(a)
    }}
"""
DIVIDED = [
    P,
    "id = u32[] {}-id()",
    "zero = u32[] constant(0)",
    "first = pred[] compare(id, zero), direction=EQ",
    "ROOT out = f32[2] conditional(first, p, p), true_computation=taken, false_computation=left",
]


def divided(before: str, after: str, axis: str, header: str = HEADER) -> Verdict:
    body = [line.format(axis) for line in DIVIDED]
    return verdict(body, body, (BRANCHES.format(lines=before), BRANCHES.format(lines=after)), header)


def test_a_permute_there_and_back_is_something_where_not_all_devices_come() -> None:
    there_and_back = """
        b = f32[2] collective-permute(a), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
        ROOT c = f32[2] collective-permute(b), channel_id=2, source_target_pairs={{1,0},{2,1},{3,2},{0,3}}
    """
    found = divided("ROOT c = f32[2] copy(a)", there_and_back, "partition")
    assert not found.proved or "together" in found.sites[0].conditions[0]


def test_devices_that_never_come_do_not_count() -> None:
    header = "HloModule m, replica_count=2, num_partitions=2"
    permute = "ROOT c = f32[2] collective-permute(a), channel_id=1, source_target_pairs={{0,1},{1,0}}"
    chain = """
        ag = f32[4] all-gather(a), channel_id=2, replica_groups={{0,1},{%s}}, use_global_device_ids=true, dimensions={0}
        id = u32[] partition-id()
        one = u32[] constant(1)
        other = u32[] xor(id, one)
        two = u32[] constant(2)
        start = u32[] multiply(other, two)
        ROOT c = f32[2] dynamic-slice(ag, start), dynamic_slice_sizes={2}
    """
    assert divided(permute, chain % "2,3", "replica", header).proved
    assert divided(permute, chain % "3,2", "replica", header).proved
    assert not divided(permute, (chain % "2,3").replace("{0,1}", "{1,0}"), "replica", header).proved
    # Where another branch comes as well, they do.
    assert not divided(permute, chain % "3,2", "partition", header).proved


JOIN = """
    join {
      a = s32[] parameter(0)
      b = s32[] parameter(1)
      %s
    }
"""
LONE = [
    "p = s32[2] parameter(0)",
    "zero = s32[] constant(0)",
    "wide = s32[3,2] broadcast(zero), dimensions={}",
    "row = s32[1,2] reshape(p)",
    "placed = s32[3,2] dynamic-update-slice(wide, row, zero, zero)",
    "ROOT r = s32[2] reduce(placed, zero), dimensions={0}, to_apply=join",
]


def test_what_a_reducer_does() -> None:
    plain = ["p = s32[2] parameter(0)", "ROOT r = s32[2] copy(p)"]
    shown = ("ROOT r = s32[] add(a, b)", "c = s32[] or(a, b)\n ROOT r = s32[] copy(c)")
    ring = "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
    not_shown = (
        "ROOT r = s32[] maximum(a, b)",
        "c = s32[] or(a, a)\n ROOT r = s32[] copy(c)",
        f"c = s32[] or(a, b)\n ROOT r = s32[] collective-permute(c), channel_id=1, {ring}",
    )
    for lines in shown:
        assert verdict(plain, LONE, ("", JOIN % lines)).proved, lines
    for lines in not_shown:
        assert not verdict(plain, LONE, ("", JOIN % lines)).proved, lines


def test_no_collective_comes_into_a_reducer() -> None:
    body = [
        "p = s32[2] parameter(0)",
        "zero = s32[] constant(0)",
        "ROOT r = s32[] reduce(p, zero), dimensions={0}, to_apply=join",
    ]
    added = "c = s32[] add(a, b)\n"
    there = "d = s32[] collective-permute(c), channel_id=1, source_target_pairs={{0,1},{1,0},{2,3},{3,2}}\n"
    back = "ROOT e = s32[] collective-permute(d), channel_id=2, source_target_pairs={{0,1},{1,0},{2,3},{3,2}}"
    assert not verdict(body, body, (JOIN % "ROOT c = s32[] add(a, b)", JOIN % (added + there + back))).proved


def test_a_computed_element_of_a_tuple_stays_computed() -> None:
    lines = [
        "p = f32[4] parameter(0)",
        "id = u32[] partition-id()",
        "both = (f32[4], u32[]) tuple(p, id)",
        "held = (f32[4], u32[]) opt-barrier(both)",
        "q = f32[4] get-tuple-element(held), index=0",
        "i = u32[] get-tuple-element(held), index=1",
        "zero = u32[] constant(0)",
        "none = u32[] multiply(i, zero)",
        "one = f32[2] dynamic-slice(q, none), dynamic_slice_sizes={2}",
        "ROOT r = f32[2] negate(one)",
    ]
    plain = ["p = f32[4] parameter(0)", "one = f32[2] slice(p), slice={[0:2]}", "ROOT r = f32[2] negate(one)"]
    assert verdict(plain, lines).proved


def test_a_mask_of_data() -> None:
    head = ["p = pred[3] parameter(0)", "yes = pred[3] constant({1, 1, 1})", "no = pred[3] constant({0, 0, 0})"]
    plain = ["p = pred[3] parameter(0)", "ROOT r = pred[3] copy(p)"]
    assert verdict(plain, [*head, "ROOT r = pred[3] select(p, yes, no)"]).proved
    assert verdict(plain, [*head, "ROOT r = pred[3] select(no, yes, p)"]).proved
    assert not verdict(plain, [*head, "ROOT r = pred[3] select(p, no, yes)"]).proved


def test_a_lost_payload_is_another_integer() -> None:
    lines = ["p = f32[2] parameter(0)", "w = f64[2] convert(p)", "n = f32[2] convert(w)"]
    read = "ROOT r = s32[2] bitcast-convert({})"
    before = parse(module_text(HEADER, [lines[0], read.format("p")]))
    after = parse(module_text(HEADER, [*lines, read.format("n")]))
    assert not verify(before, after, run=False, ignore_nan_payload=True).proved


def test_a_root_that_lost_payloads_is_not_the_same() -> None:
    permute = "c = f32[2] collective-permute(p), channel_id=1, source_target_pairs={{0,1},{1,0}}"
    lost = [P, permute, "w = f64[2] convert(c)", "ROOT n = f32[2] convert(w)"]
    assert not verdict([P, f"ROOT {permute}"], lost).proved
    modules = [parse(module_text(HEADER, body)) for body in ([P, f"ROOT {permute}"], lost)]
    assert verify(*modules, run=False, ignore_nan_payload=True).proved


def test_a_root_leans_on_what_it_is_made_of() -> None:
    on = "d = f32[2] collective-permute(c), channel_id=7, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
    back = "ROOT e = f32[2] collective-permute(d), channel_id=8, source_target_pairs={{1,0},{2,1},{3,2},{0,3}}"
    permute = "c = f32[2] collective-permute(a), channel_id=1, source_target_pairs={{0,0}}"
    found = divided(f"ROOT {permute}", f"{permute}\n{on}\n{back}", "partition")
    assert not found.proved or any(site.conditions for site in found.sites)


def test_a_reduction_that_not_every_backend_has_is_a_condition() -> None:
    body = """
        zeros = s32[8] broadcast(zero), dimensions={}
        id = s32[1] constant({0})
        where = u32[] partition-id()
        two = u32[] constant(2)
        start = u32[] multiply(where, two)
        sent = s32[8] dynamic-update-slice(zeros, p, start)
        ROOT r = s32[2] reduce-scatter(sent), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, dimensions={0}, to_apply=join
    """  # noqa: E501
    lines = ["p = s32[2] parameter(0)", "zero = s32[] constant(0)", *(i.strip() for i in body.strip().splitlines())]
    plain = ["p = s32[2] parameter(0)", "ROOT r = s32[2] copy(p)"]
    for opcode in ("add", "or"):
        found = verdict(plain, lines, ("", JOIN % f"ROOT r = s32[] {opcode}(a, b)"))
        assert found.proved
        assert any("can reduce with or" in c for site in found.sites for c in site.conditions) == (opcode == "or"), (
            found
        )


def test_a_done_of_what_all_devices_agree_on_can_be_run() -> None:
    lines = [
        "one = f32[] constant(1)",
        "begun = (f32[], f32[]) collective-permute-start(one), channel_id=1, source_target_pairs={{0,1},{1,0}}",
        "ROOT r = f32[] collective-permute-done(begun)",
    ]
    assert run(parse(module_text(HEADER, lines)), [], 1, 4)[0].tolist() == [1, 1, 0, 0]
