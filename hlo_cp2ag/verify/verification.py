"""`verify`: whether one module computes what another one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from hlo_cp2ag.ir.module import HloModule, Instruction
from hlo_cp2ag.ir.source import HloError
from hlo_cp2ag.lowering.config import GridConfig, resolve_grid
from hlo_cp2ag.lowering.sites import permutes
from hlo_cp2ag.verify.proof import Proof
from hlo_cp2ag.verify.report import Verdict
from hlo_cp2ag.verify.symbols import SMALL, at_most

if TYPE_CHECKING:
    from hlo_cp2ag.verify.module_run import EngineRun

DEFAULT_MAX_MEMORY = 2 << 30
"""Bytes that a proof or a run may take, unless the caller says otherwise."""
_BYTES_A_DEVICE = 64
"""What lists of devices take at least, before any data is looked at."""


def verify(
    before: HloModule,
    after: HloModule,
    replica_count: int | None = None,
    num_partitions: int | None = None,
    profile: Literal["xla", "neuron"] = "xla",
    *,
    secondary_mesh_count: int = 0,
    strict_grid: bool = False,
    run: bool | None = None,
    engine: Literal["executor", "xla", "both"] = "executor",
    inputs: Any = None,
    seed: int = 0,
    tolerance: float | None = None,
    max_memory: int | None = DEFAULT_MAX_MEMORY,
    max_steps: int | None = None,
    time_limit: float = 120.0,
    fill_elided: Literal["random"] | None = None,
    ignore_nan_payload: bool = False,
    same_constants: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Verdict:
    """Whether `after` computes what `before` does, on all devices and for all inputs.

    Check 1 compares the graphs outside the rewritten sites, check 2 proves each site in a symbolic domain under the
    semantics of `profile`, check 3 runs both modules (`run`: None where that can be done, True always, False never) on
    the same `inputs`, or seeded ones, in the executor, on real XLA, or both. Counts that are None come from the headers
    or from the first module's evidence, as in `rewrite`. `same_constants` says that the second module was made of the
    first, so that elided constants of one name are the same.

    Raises HloSyntaxError for a module that is none, HloError for counts that contradict each other and for two modules
    that do not belong together: other parameters or another result.
    """
    before.check()
    after.check()
    config = grid_of_pair(before, after, replica_count, num_partitions, secondary_mesh_count, strict_grid)
    refuse_other_signature(before, after)
    devices = config.grid.device_count
    if max_memory is not None and _BYTES_A_DEVICE * devices > max(max_memory, SMALL):
        message = f"tables of {devices:,} devices take more than the {max_memory:,} bytes allowed (--max-memory)"
        raise before.header_error(message, "a larger --max-memory lets it try")
    proof = Proof(
        before,
        after,
        config.grid,
        profile,
        same_constants=same_constants,
        ignore_nan_payload=ignore_nan_payload,
    )
    with at_most(max_memory):
        proof.run()
    runs: list[EngineRun] = []
    if run is not False:
        from hlo_cp2ag.verify.module_run import run_both

        runs = run_both(
            before,
            after,
            config.replica_count.value,
            config.num_partitions.value,
            profile=profile,
            engine=engine,
            inputs=inputs,
            seed=seed,
            tolerance=tolerance,
            max_memory=max_memory,
            max_steps=max_steps,
            time_limit=time_limit,
            fill_elided=fill_elided,
            forced=run is True,
            progress=progress,
        )
    return Verdict(
        config.replica_count.value,
        config.num_partitions.value,
        profile,
        proof.untouched,
        tuple(proof.sites),
        tuple(runs),
        run is True,
        config.warnings,
    )


def grid_of_pair(
    before: HloModule,
    after: HloModule,
    replica_count: int | None = None,
    num_partitions: int | None = None,
    secondary_mesh_count: int = 0,
    strict_grid: bool = False,
) -> GridConfig:
    """The grid that both modules are for. Raises HloError if their headers say two different ones."""
    counts = {"replica_count": replica_count, "num_partitions": num_partitions}
    for name, flag in counts.items():
        own, new = (module.header_attribute(name) for module in (before, after))
        if own is not None and new is not None and own.value_text.strip() != new.value_text.strip() and flag is None:
            raise after.source.error(
                new.value_span.start,
                f"the modules are for two grids: {name}={new.value_text.strip()} here, "
                f"{own.value_text.strip()} in {before.source.filename}",
                hint=f"--{name.replace('_', '-')} overrides both",
            )
        if own is None and new is not None and flag is None and new.value_text.strip().isdecimal():
            counts[name] = int(new.value_text)
    found = [(permute, _pairs(permute)) for permute in permutes(before)] if "collective-permute" in before.text else []
    if not found and "collective-permute" in after.text:
        found = [(permute, _pairs(permute)) for permute in permutes(after)]
    return resolve_grid(
        before, found, counts["replica_count"], counts["num_partitions"], secondary_mesh_count, strict_grid,
        write_config=True,
    )  # fmt: skip


def _pairs(permute: Instruction) -> tuple[tuple[int, int], ...]:
    pairs = permute.attribute("source_target_pairs")
    if pairs is None:
        raise permute.error("a collective-permute needs source_target_pairs")
    return cast("tuple[tuple[int, int], ...]", pairs)


def refuse_other_signature(before: HloModule, after: HloModule) -> None:
    """Raise HloError unless both entries have the same parameters and the same result, layouts aside."""
    from hlo_cp2ag.executor.plan import ModuleIndex

    own, new = (ModuleIndex(module).parameters(module.entry) for module in (before, after))
    if len(own) != len(new):
        raise _other(after, f"it has {len(new)} parameters, {len(own)} in {before.source.filename}")
    for number, (a, b) in enumerate(zip(own, new, strict=True)):
        if a.shape.to_text(False) != b.shape.to_text(False):
            text = (
                f"parameter {number} is {b.shape.to_text(False)}, {a.shape.to_text(False)} in {before.source.filename}"
            )
            raise _other(after, text, b)
    a, b = before.entry.root, after.entry.root
    if a.shape.to_text(False) != b.shape.to_text(False):
        text = f"the result is {b.shape.to_text(False)}, {a.shape.to_text(False)} in {before.source.filename}"
        raise _other(after, text, b)


def _other(after: HloModule, text: str, instruction: Instruction | None = None) -> HloError:
    where = (instruction or after.entry).name_span.start
    return after.source.error(where, f"the two modules do not belong together: {text}")
