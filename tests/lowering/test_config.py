"""Where the grid comes from: flags, header, fallback, evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_cp2ag
from hlo_cp2ag import HloError
from tests.corpus import SHARED, needs_corpus

BODY = """
add {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}}

ENTRY e {{
  p = f32[8] parameter(0){sharding}
{other}  ROOT cp = f32[8] collective-permute(p), {channel}source_target_pairs={pairs}
}}
"""


def module(
    header: str = "", pairs: str = "{{0,1},{1,0}}", channel: str = "channel_id=1, ", other: str = "", sharding: str = ""
) -> hlo_cp2ag.HloModule:
    other = f"  c = {other}\n" if other else ""
    return hlo_cp2ag.parse(
        f"HloModule m{header}\n" + BODY.format(pairs=pairs, channel=channel, other=other, sharding=sharding), "m.hlo"
    )


def grid(text: hlo_cp2ag.HloModule, **flags: object) -> tuple[int, str, int, str]:
    config = hlo_cp2ag.rewrite(text, **flags).config  # type: ignore[arg-type]
    r, p = config.replica_count, config.num_partitions
    return r.value, r.source, p.value, p.source


REDUCE = "f32[8] all-reduce(p), {}to_apply=add"


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        (module(", num_partitions=2"), {}, (1, "default", 2, "header")),
        (module(", replica_count=4, num_partitions=2"), {}, (4, "header", 2, "header")),
        (module(), {"num_partitions": 8}, (1, "default", 8, "flag")),
        (module(", num_partitions=2"), {"num_partitions": 8}, (1, "default", 8, "flag")),
        (module(), {"secondary_mesh_count": 6}, (1, "default", 6, "secondary mesh count")),
        (module(", num_partitions=2"), {"secondary_mesh_count": 6}, (1, "default", 2, "header")),
        # Evidence: groups of another collective, by its mode.
        (module(other=REDUCE.format("channel_id=2, replica_groups={{0,1,2,3}}, use_global_device_ids=true, ")), {},
         (1, "default", 4, "collectives")),
        (module(other=REDUCE.format("channel_id=2, replica_groups=[2,4]<=[8], use_global_device_ids=true, ")), {},
         (1, "default", 8, "collectives")),
        (module(channel="", other=REDUCE.format("replica_groups={{0,2},{1,3}}, ")), {}, (4, "collectives", 1, "default")),
        # Device counts in shardings.
        (module(sharding=", sharding={devices=[4]<=[4]}"), {}, (1, "default", 4, "shardings")),
        (module(sharding=", sharding={devices=[2,3]0,1,2,3,4,5 last_tile_dim_replicate}"), {}, (1, "default", 6, "shardings")),
        (module(sharding=", sharding={mesh['x'=2,'y'=4], [{'x'}]}"), {}, (1, "default", 8, "shardings")),
        # Pairs, the lower bound.
        (module(), {}, (1, "default", 2, "pairs")),
        (module(channel=""), {}, (2, "pairs", 1, "default")),
    ],
)  # fmt: skip
def test_where_the_counts_come_from(
    text: hlo_cp2ag.HloModule, flags: dict[str, object], expected: tuple[int, str, int, str]
) -> None:
    assert grid(text, **flags) == expected


def test_pairs_alone_warn_and_strict_refuses() -> None:
    result = hlo_cp2ag.rewrite(module())
    assert result.config.is_lower_bound
    assert [w.header() for w in result.warnings] == [
        "m.hlo:1:1: warning: num_partitions 2 is only the least that the pairs allow; there may be more partitions: "
        "--num-partitions says how many"
    ]
    with pytest.raises(HloError, match="num_partitions 2 is only the least that the pairs allow"):
        hlo_cp2ag.rewrite(module(), strict_grid=True)


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (module(), {"replica_count": 0}, "--replica-count must be at least 1, not 0"),
        (module(", replica_count=0"), {}, "replica_count must be at least 1"),
        (module(sharding=", sharding={devices=[4]<=[4]}", other="f32[8] copy(p), sharding={devices=[8]<=[8]}"), {},
         "the shardings speak of 4 and 8 partitions"),
        (module(other=REDUCE.format("channel_id=2, replica_groups={{0,1,2,3}}, use_global_device_ids=true, "),
                sharding=", sharding={devices=[8]<=[8]}"), {},
         "the shardings speak of 8 partitions, the collectives of 4"),
        (module(pairs="{{0,5}}", sharding=", sharding={devices=[4]<=[4]}"), {},
         "pairs name the id 5, but the shardings speak of 4 partitions"),
        (module(other="f32[8] collective-permute(p), source_target_pairs={{0,1}}"), {},
         "nothing but the pairs says how many replicas and partitions there are"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(text: hlo_cp2ag.HloModule, flags: dict[str, object], message: str) -> None:
    with pytest.raises(HloError) as caught:
        hlo_cp2ag.rewrite(text, **flags)  # type: ignore[arg-type]
    assert message in str(caught.value)


@needs_corpus
@pytest.mark.parametrize("path", sorted(SHARED.glob("jax/*/pre_scheduler.hlo")), ids=lambda path: path.parent.name)
def test_the_grid_of_jaxs_own_dumps(path: Path) -> None:
    """What meta.json says is what is found, or, where only pairs speak, no more than that with a warning, or a refusal."""
    import json

    meta = json.loads((path.parent / "meta.json").read_text())
    wanted = (meta["replica_count"], meta["num_partitions"])
    text = hlo_cp2ag.parse(path.read_text(), path.name)
    try:
        result = hlo_cp2ag.rewrite(text)
    except HloError as error:
        assert "nothing but the pairs says" in str(error)
        assert 1 not in wanted
        return
    found = (result.config.grid.replica_count, result.config.grid.num_partitions)
    if not result.sites:
        return
    if result.config.is_lower_bound:
        assert found <= wanted
        assert any("only the least" in warning.message for warning in result.warnings)
    else:
        assert found == wanted


FLAT_8 = REDUCE.format("channel_id=2, replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true, ")


def test_global_groups_give_only_the_product() -> None:
    """8 devices and pairs of 4 ids: 1 x 8 and 2 x 4 are both possible."""
    text = module(pairs="{{0,1},{1,2},{2,3},{3,0}}", other=FLAT_8)
    result = hlo_cp2ag.rewrite(text)
    assert [w.message for w in result.warnings] == [
        "the collectives say only that there are 8 devices; num_partitions 8 is a guess: "
        "--replica-count and --num-partitions say how many"
    ]
    with pytest.raises(HloError, match="num_partitions 8 is a guess"):
        hlo_cp2ag.rewrite(text, strict_grid=True)


def test_global_groups_are_certain_where_pairs_need_them_all_or_shardings_split_them() -> None:
    pairs = "{{0,7},{7,0}}"
    assert hlo_cp2ag.rewrite(module(pairs=pairs, other=FLAT_8), strict_grid=True).warnings == []
    split = module(other=FLAT_8, sharding=", sharding={devices=[4]<=[4]}")
    assert grid(split, strict_grid=True) == (2, "collectives", 4, "shardings")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": "x"}, "unknown gate 'x'; there are every, valid, intra-group, invalid"),
        ({"names": "kep"}, "unknown names 'kep'; there are fresh, keep"),
        ({"profile": "foo"}, "unknown profile 'foo'; there are xla, neuron"),
    ],
)
def test_unknown_values_of_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hlo_cp2ag.rewrite(module(", num_partitions=2"), **options)  # type: ignore[arg-type]


def test_types_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="rewrite takes a module, not str"):
        hlo_cp2ag.rewrite("HloModule m")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="--num-partitions must be an integer, not '4'"):
        hlo_cp2ag.rewrite(module(), num_partitions="4")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"device_id": "replica-id"},
            "--device-id replica-id takes the pairs for flat ranks; for XLA they name partitions of 1 x 4",
        ),
        ({"non_target": "keep"}, "--non-target keep: a device that is no target keeps its shard; XLA gives it zeros"),
    ],
)
def test_flags_that_break_the_profiles_promise_warn(options: dict[str, str], message: str) -> None:
    text = module(", num_partitions=4")
    assert [w.message for w in hlo_cp2ag.rewrite(text, **options).warnings] == [message]  # type: ignore[arg-type]
    assert message not in [w.message for w in hlo_cp2ag.rewrite(text, profile="neuron", **options).warnings]  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", ["f32[2]{5}", "f32[2]{1}", "f32[2,3]{0,7}", "f32[2,3]{0,0}", "s4[2,3]{1,5}"])
def test_layouts_that_are_no_order_are_left(shape: str) -> None:
    text = f"HloModule m, replica_count=2\nENTRY e {{\n  p = {shape} parameter(0)\n"
    text += f"  ROOT c = {shape} collective-permute(p), source_target_pairs={{{{0,1}},{{1,0}}}}\n}}\n"
    for flag in ("auto", "leading", "major"):
        result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(text), gather_dimension=flag)
        assert not result.changed
        assert "is no order of its dimensions" in result.sites[0].reason


def test_a_permute_that_a_reduce_applies_is_left() -> None:
    text = """HloModule m, replica_count=2
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  cp = f32[] collective-permute(a), source_target_pairs={{0,1},{1,0}}
  ROOT s = f32[] add(cp, b)
}
ENTRY e {
  p = f32[4] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(p, z), dimensions={0}, to_apply=f
}
"""
    result = hlo_cp2ag.rewrite(hlo_cp2ag.parse(text))
    assert result.sites[0].reason == "inside a computation that a reduce applies"
