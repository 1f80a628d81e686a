"""The golden cases: each a module under fixtures/ and the flags it is rewritten with.

The answer is in `fixtures/golden/`: `<name>.hlo` (`.diff`, `.json` for those) holds stdout, `<name>.stderr` what
is said on stderr, if anything is. `python -m tests.golden.regenerate` writes them anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.cli.in_process import FIXTURES, Outcome, cp2ag

GOLDEN = FIXTURES / "golden"


@dataclass(frozen=True)
class Case:
    name: str
    input: str
    """Below fixtures/, without `.hlo`."""
    argv: tuple[str, ...] = ()
    exit_code: int = 0

    @property
    def stdout_path(self) -> Path:
        suffix = "diff" if "--diff" in self.argv else "json" if "--report" in self.argv else "hlo"
        return GOLDEN / f"{self.name}.{suffix}"

    @property
    def stderr_path(self) -> Path:
        return GOLDEN / f"{self.name}.stderr"

    @property
    def path(self) -> Path:
        return FIXTURES / f"{self.input}.hlo"

    def command(self) -> list[str]:
        """The arguments; the module is named without its folder, so that messages are the same everywhere."""
        return ["rewrite", self.path.name, *self.argv]

    def run(self) -> Outcome:
        return cp2ag(*self.command(), cwd=self.path.parent)


def _case(name: str, input_: str, flags: str = "", exit_code: int = 0) -> Case:
    return Case(name, input_, tuple(flags.split()), exit_code)


CASES = [
    # ---- the chain, form by form
    _case("chain_partitions", "hand/root_permute"),
    _case("chain_replicas", "hand/root_in_the_middle"),
    _case("chain_no_root_mark", "hand/no_root_mark"),
    _case("chain_identity_pairs", "hand/pairs_identity"),
    _case("chain_unordered_pairs", "hand/pairs_unordered"),
    _case("zeros", "hand/pairs_partial"),
    _case("zeros_self_pair", "hand/pairs_self"),
    _case("zeros_empty_pairs", "hand/pairs_empty"),
    _case("two_axes_partitions", "hand/grid_2x4_partitions"),
    _case("two_axes_replicas", "hand/grid_2x4_replicas"),
    _case("two_axes_both", "hand/grid_2x4_both"),
    _case("two_axes_partitions_zeros", "hand/grid_2x4_partitions_partial"),
    _case("variadic_zeros", "hand/variadic"),
    _case("variadic_full", "golden/inputs/variadic_full"),
    _case("variadic_scalar_and_sub_byte", "golden/inputs/variadic_mixed"),
    _case("variadic_six", "golden/inputs/variadic_six"),
    _case("scalar", "hand/scalar"),
    _case("scalar_zeros", "hand/scalar_partial"),
    _case("scalar_sub_byte_zeros", "golden/inputs/scalar_s4"),
    _case("scalar_pred_zeros", "golden/inputs/scalar_pred"),
    _case("rank_5_zeros", "hand/rank_5"),
    _case("rank_6", "hand/rank_6"),
    _case("leading_dimension_one", "hand/leading_dimension_one"),
    _case("leading_dimension_zero", "hand/leading_dimension_zero"),
    _case("chain_of_permutes", "hand/chain_of_permutes"),
    _case("channel_id_shared", "hand/channel_id_shared"),
    _case("used_many_times", "hand/used_many_times"),
    _case("unused", "hand/unused_permute"),
    _case("names_taken", "hand/names_taken"),
    _case("names_that_are_prefixes", "golden/inputs/names_that_are_prefixes"),
    # ---- element types, each with its zero
    *(
        _case(f"type_{t}", f"hand/type_{t}")
        for t in (
            "pred",
            "s8",
            "u64",
            "f8e4m3fn",
            "f8e5m2",
            "f16",
            "bf16",
            "f64",
            "c64",
            "c128",
            "s4",
            "u4",
            "s2",
            "u2",
        )
    ),
    _case("type_s4_sub_byte_keep", "hand/type_s4", "--sub-byte keep"),
    _case("type_u2_sub_byte_keep", "hand/type_u2", "--sub-byte keep"),
    _case("type_f8e8m0fnu_left", "hand/type_f8e8m0fnu"),
    _case("type_f8e8m0fnu_keep", "hand/type_f8e8m0fnu", "--non-target keep"),
    _case("type_f4e2m1fn_left", "hand/type_f4e2m1fn"),
    # ---- layouts
    _case("layout_column_major", "hand/layout_column_major_scheduled"),
    _case("layout_column_major_zeros", "golden/inputs/layout_column_major_partial"),
    _case("layout_column_major_leading", "hand/layout_column_major_scheduled", "--gather-dimension leading"),
    _case("layout_column_major_major", "hand/layout_column_major_scheduled", "--gather-dimension major"),
    _case("layout_rank_3_middle", "golden/inputs/layout_rank_3_middle"),
    _case("layout_size_one_outermost", "golden/inputs/layout_size_one_outermost"),
    _case("layout_size_one_outermost_major", "golden/inputs/layout_size_one_outermost", "--gather-dimension major"),
    _case("layout_memory_space", "hand/layout_memory_space_scheduled"),
    _case("layout_memory_space_zeros", "golden/inputs/layout_memory_space_partial"),
    _case("layout_tiled", "hand/layout_tiled"),
    _case("layout_tiled_bf16_zeros", "hand/layout_tiled_bf16"),
    _case("layout_s4_packed", "hand/layout_s4_packed"),
    _case("layout_s4_packed_keep", "hand/layout_s4_packed", "--sub-byte keep"),
    # ---- attributes
    _case("metadata", "hand/metadata"),
    _case("metadata_zeros", "golden/inputs/metadata_partial"),
    _case("origin", "golden/inputs/origin"),
    _case("frontend_attributes", "hand/frontend_attributes"),
    _case("frontend_attributes_neuron", "hand/frontend_attributes", "--profile neuron"),
    _case("backend_config_dropped", "hand/backend_config"),
    _case("backend_config_string_dropped", "hand/backend_config_string"),
    _case("all_attributes", "hand/all_attributes"),
    _case("all_attributes_full_pairs", "golden/inputs/all_attributes_full"),
    _case("control_predecessors", "hand/control_predecessors"),
    _case("control_predecessors_variadic", "golden/inputs/control_predecessors_variadic"),
    _case("control_predecessors_keep", "hand/control_predecessors", "--names keep"),
    _case("sharding_manual", "hand/sharding_manual"),
    _case("sharding_maximal", "hand/sharding_maximal"),
    _case("sharding_replicated_left", "hand/sharding_replicated"),
    _case("sharding_tiled_left", "hand/sharding_tiled"),
    # ---- styles of text
    _case("style_no_percent", "hand/names_without_percent"),
    _case("style_operand_shapes", "hand/operand_shapes_printed"),
    _case("style_operand_shapes_zeros", "golden/inputs/operand_shapes_partial"),
    _case("style_no_layouts", "hand/no_layouts"),
    _case("style_crlf", "hand/crlf_lines"),
    _case("style_cr", "golden/inputs/cr_lines"),
    _case("style_several_on_a_line", "hand/several_on_a_line"),
    _case("style_comments", "hand/comments"),
    _case("style_tabs", "hand/tabs"),
    _case("style_one_over_several_lines", "hand/one_over_several_lines"),
    _case("style_no_final_newline", "hand/no_final_newline"),
    _case("style_no_final_newline_permute_last", "golden/inputs/ends_at_the_permute"),
    _case("style_no_header", "hand/no_header"),
    _case("style_no_entry", "hand/no_entry"),
    _case("style_result_shapes_left_out", "hand/result_shapes_left_out"),
    _case("style_strings_like_code", "hand/strings_like_code"),
    _case("style_inline_computation", "hand/inline_computation"),
    _case("style_elided_constant", "hand/elided_constant"),
    _case("no_permute", "hand/no_permute"),
    # ---- profiles and gates
    _case("xla_gate_valid", "hand/pairs_identity", "--gate valid"),
    _case("xla_gate_valid_full", "hand/pairs_unordered", "--gate valid"),
    _case("xla_gate_valid_left_crossing", "hand/root_permute", "--gate valid"),
    _case("xla_gate_intra_group", "golden/inputs/both_kinds_of_pairs", "--gate intra-group"),
    _case("xla_gate_intra_group_left", "hand/root_permute", "--gate intra-group"),
    _case("xla_gate_invalid", "hand/pairs_partial", "--gate invalid"),
    _case("xla_gate_invalid_left", "hand/root_in_the_middle", "--gate invalid"),
    _case("xla_non_target_keep", "hand/pairs_partial", "--non-target keep"),
    _case("xla_device_id_replica_id", "golden/inputs/flat_ranks", "--device-id replica-id"),
    _case("neuron_clean_left", "hand/root_in_the_middle", "--profile neuron"),
    _case("neuron_partial", "hand/pairs_partial", "--profile neuron"),
    _case("neuron_partitions", "hand/root_permute", "--profile neuron"),
    _case("neuron_gate_every", "hand/root_in_the_middle", "--profile neuron --gate every"),
    _case("neuron_gate_every_partitions", "hand/root_permute", "--profile neuron --gate every"),
    _case("neuron_gate_valid", "hand/root_in_the_middle", "--profile neuron --gate valid"),
    _case("neuron_gate_intra_group", "hand/pairs_partial", "--profile neuron --gate intra-group"),
    _case("neuron_flat_ranks", "golden/inputs/flat_ranks", "--profile neuron"),
    _case("neuron_non_target_zero", "hand/pairs_partial", "--profile neuron --non-target zero"),
    _case("neuron_duplicate_targets", "hand/pairs_duplicate_targets", "--profile neuron"),
    _case("neuron_duplicate_sources", "hand/pairs_duplicate_sources", "--profile neuron"),
    _case("neuron_s4", "hand/type_s4", "--profile neuron"),
    _case("neuron_column_major", "hand/layout_column_major_scheduled", "--profile neuron --gate every"),
    _case("neuron_variadic", "hand/variadic", "--profile neuron"),
    _case("neuron_scalar", "hand/scalar_partial", "--profile neuron"),
    # ---- which permutes, under which names
    _case("names_keep", "hand/channel_id_shared", "--names keep"),
    _case("names_keep_zeros", "hand/pairs_partial", "--names keep"),
    _case("only", "hand/chain_of_permutes", "--only ^cp$"),
    _case("only_anywhere", "hand/channel_id_shared", "--only 7"),
    # ---- inside other computations
    _case("in_while_body", "hand/in_while_body"),
    _case("in_called_computation", "hand/in_called_computation"),
    _case("in_branch_by_constant", "hand/in_branch_by_constant"),
    _case("in_branch_by_replica", "hand/in_branch_by_replica"),
    _case("in_both_branches_by_replica", "hand/in_both_branches_by_replica"),
    # ---- asynchronous pairs
    _case("async_pair", "hand/async_start_done"),
    _case("async_pair_names_keep", "hand/async_start_done", "--names keep"),
    _case("async_computation", "hand/async_calls_a_permute"),
    _case("async_neuron", "golden/inputs/async_overlap", "--profile neuron --async convert --gate every"),
    _case("async_overlap", "golden/inputs/async_overlap"),
    _case("async_forms", "golden/inputs/async_forms"),
    _case("async_attributes", "golden/inputs/async_attributes"),
    _case("async_after_its_like", "golden/inputs/async_after_its_like"),
    # ---- gathers that cost less
    _case("groups_minimal_rings", "golden/inputs/two_rings", "--groups minimal"),
    _case("groups_minimal_one_ring", "hand/root_permute", "--groups minimal"),
    _case("groups_minimal_merged", "golden/inputs/merged_groups", "--groups minimal"),
    _case("groups_minimal_two_axes", "hand/grid_2x4_both", "--groups minimal"),
    _case("groups_minimal_neuron", "golden/inputs/two_rings", "--groups minimal --profile neuron"),
    _case("groups_minimal_in_branch", "golden/inputs/pairs_in_branch", "--groups minimal"),
    _case("groups_all_in_branch", "golden/inputs/pairs_in_branch"),
    _case("groups_minimal_async", "golden/inputs/async_overlap", "--groups minimal --names keep"),
    _case("share_gathers", "golden/inputs/halo", "--share-gathers"),
    _case("share_gathers_minimal", "golden/inputs/halo", "--share-gathers --groups minimal"),
    _case("share_gathers_names_keep", "golden/inputs/halo", "--share-gathers --names keep"),
    _case("share_gathers_bound", "golden/inputs/halo", "--share-gathers --groups minimal --max-gather-bytes 48"),
    _case("share_gathers_waiting", "golden/inputs/halo_waiting", "--share-gathers"),
    _case("max_gather_bytes", "golden/inputs/halo", "--max-gather-bytes 95"),
    _case("max_gather_bytes_just_enough", "golden/inputs/halo", "--max-gather-bytes 96"),
    _case("simplify", "golden/inputs/simplified", "--simplify"),
    _case("simplify_names_keep", "golden/inputs/simplified", "--simplify --names keep"),
    _case("simplify_identity_root", "hand/pairs_identity", "--simplify"),
    _case("simplify_empty_keep", "hand/pairs_empty", "--simplify --non-target keep"),
    _case("report_cheaper", "golden/inputs/halo", "--check --report - --share-gathers --groups minimal", exit_code=1),
    # ---- what is left
    _case("left_async_start", "hand/async_start_done", "--async keep"),
    _case("left_async_start_neuron", "hand/async_start_done", "--profile neuron"),
    _case("left_async_computation", "hand/async_calls_a_permute", "--async keep"),
    _case("left_async_forms", "golden/inputs/async_left"),
    _case("left_custom_call", "hand/custom_call_calls_a_permute"),
    _case("left_inside_fusion", "hand/inside_fusion"),
    _case("left_in_place", "hand/in_place"),
    _case("left_dynamic_dimension", "hand/dynamic_dimension"),
    _case("left_token", "hand/token_operand"),
    _case("left_channel_id_zero", "hand/channel_id_zero"),
    _case("left_operand_is_an_instruction", "hand/operand_is_an_instruction"),
    _case("left_too_large", "golden/inputs/too_large"),
    _case("left_require_all", "hand/async_start_done", "--require-all --async keep", exit_code=1),
    _case("left_quiet", "hand/async_start_done", "-q --async keep"),
    # ---- the grid and the header
    _case("grid_from_collectives", "hand/grid_without_counts"),
    _case("grid_from_shardings", "golden/inputs/grid_from_shardings"),
    _case("grid_from_pairs", "golden/inputs/grid_from_pairs"),
    _case("grid_secondary_mesh_count", "golden/inputs/grid_from_pairs", "--secondary-mesh-count 8"),
    _case("grid_flags", "golden/inputs/grid_from_pairs", "--replica-count 2 --num-partitions 4"),
    _case("header_contradicted", "hand/grid_2x4_partitions", "--num-partitions 8"),
    _case("header_contradicted_twice", "hand/grid_2x4_both", "--num-partitions 8 --replica-count 3"),
    _case("header_write_config", "hand/grid_without_counts", "--write-config"),
    _case(
        "header_write_config_both",
        "golden/inputs/grid_from_pairs",
        "--write-config --replica-count 2 --num-partitions 4",
    ),
    _case("header_write_config_one_missing", "hand/root_permute", "--write-config --replica-count 2"),
    _case("header_write_config_not_needed", "hand/grid_2x4_both", "--write-config"),
    _case("header_write_config_no_header", "hand/no_header", "--write-config --replica-count 4"),
    # ---- diffs and reports
    _case("diff", "hand/channel_id_shared", "--diff"),
    _case("diff_names_keep", "hand/channel_id_shared", "--diff --names keep"),
    _case("diff_check", "hand/pairs_partial", "--diff --check", exit_code=1),
    _case("diff_nothing", "hand/no_permute", "--diff --check"),
    _case("diff_crlf", "hand/crlf_lines", "--diff"),
    _case("diff_no_final_newline", "hand/no_final_newline", "--diff"),
    _case("diff_no_final_newline_permute_last", "golden/inputs/ends_at_the_permute", "--diff"),
    _case("diff_several_hunks", "hand/in_while_body", "--diff"),
    _case("diff_header", "hand/grid_2x4_partitions", "--diff --num-partitions 8"),
    _case("diff_split_input_file", "golden/inputs/split", "--diff --split-input-file"),
    _case("split_input_file", "golden/inputs/split", "--split-input-file"),
    _case("report", "hand/chain_of_permutes", "--check --report -", exit_code=1),
    _case("report_two_axes", "hand/grid_2x4_both", "--check --report -", exit_code=1),
    _case("report_all_attributes", "hand/all_attributes", "--check --report -", exit_code=1),
    _case("report_variadic", "hand/variadic", "--check --report -", exit_code=1),
    _case("report_branch", "hand/in_branch_by_replica", "--check --report -", exit_code=1),
    _case("report_left", "hand/async_start_done", "--check --report - --async keep"),
    _case("report_nothing", "hand/no_permute", "--check --report -"),
    _case("report_neuron", "hand/pairs_duplicate_targets", "--check --report - --profile neuron", exit_code=1),
    _case("report_gate", "hand/root_in_the_middle", "--check --report - --profile neuron"),
    _case("report_core_count", "hand/scalar", "--check --report - --platform-version 3.0 --nc-divisor 2", exit_code=1),
    _case("report_lower_bound", "golden/inputs/grid_from_pairs", "--check --report -", exit_code=1),
    _case("report_split", "golden/inputs/split", "--check --report - --split-input-file", exit_code=1),
    # ---- modules that JAX made
    *(
        _case(f"jax_{name.replace('.', '_')}", f"jax/{name}", "--diff")
        for name in (
            "cannon.pre_scheduler",
            "many_dimensions.final",
            "partitioner_made.after_spmd",
            "halo_exchange.after_spmd",
            "scalar_prefix_sum.pre_scheduler",
            "scan_ring.final",
            "tree_of_types.after_spmd",
            "while_and_cond.final",
            "pipeline_grad.after_spmd",
            "ring_attention.pre_scheduler",
        )
    ),
]
