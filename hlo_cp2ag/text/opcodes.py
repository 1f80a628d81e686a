"""What XLA's text parser knows of each opcode: attributes, operand counts, shape inference, value vocabularies.

Measured on jaxlib 0.10.2 by asking its parser (``fixtures/programs/make_probes.py`` asks the same questions again).
The module is plain data with no imports to speak of; an :class:`OpcodeSpec` is built when first asked for.

Three opcodes have rules that depend on an operand; see :func:`operand_dependent_attributes`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ASYNC_SUFFIXES",
    "ATTRIBUTE_KINDS",
    "BASE_OPCODES",
    "COMPUTATION_ATTRIBUTES",
    "KEYWORDS",
    "MODULE_ATTRIBUTES",
    "OPCODES",
    "PRIMITIVE_TYPES",
    "UNIVERSAL_ATTRIBUTES",
    "UNSUGARED_FAMILIES",
    "AttributeKind",
    "OpcodeSpec",
    "attribute_kind",
    "opcode_spec",
    "operand_dependent_attributes",
    "split_opcode",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class AttributeKind:
    """Names of the value syntaxes; plain strings, so that the tables below stay literals."""

    BOOL = "bool"  # true | false
    INT64 = "int64"  # one integer token: -2**63 .. 2**64-1
    INT32 = "int32"  # one integer token that fits int32 after wrapping to int64
    FLOAT = "float"  # decimal, integer, inf, -inf, nan; finite float32 range, so inf is refused
    STRING = "string"  # "..." or '...', with escapes
    STRING_OR_DICT = "string_or_dict"  # a string, or {...} with balanced braces outside of "..." strings
    LITERAL = "literal"  # shape and literal, or ( literal, ... )
    INT_LIST = "int_list"  # {1,2}
    INT_LIST_LIST = "int_list_list"  # {{1,2},{3}}
    COMPUTATION = "computation"  # name, or an inline { instructions }
    COMPUTATION_LIST = "computation_list"  # {name, { instructions }}
    FFT_TYPE = "fft_type"
    PADDING_TYPE = "padding_type"
    COMPARISON_DIRECTION = "comparison_direction"
    COMPARISON_TYPE = "comparison_type"
    ENUM = "enum"  # any identifier; a name outside of the enumeration crashes XLA
    WINDOW = "window"  # {size=1x2 stride=1x1 pad=0_0x0_0 lhs_dilate=.. rhs_dilate=.. rhs_reversal=..}
    DIM_LABELS = "dim_labels"  # b01f_01io->b01f
    SPARSITY_CONFIG = "sparsity_config"  # {lhs={sparsity=2x4 dimension=1} rhs={}}
    SHARDING = "sharding"
    FRONTEND_ATTRIBUTES = "frontend_attributes"  # {name="..",other={..}}
    STATISTICS = "statistics"  # {} | {name=int,stat=number,...}
    BOOL_LIST = "bool_list"  # {true,false} or {}
    BOOL_LIST_OR_BOOL = "bool_list_or_bool"  # true | {true,false}
    INSTRUCTION_LIST = "instruction_list"  # {a, %b}; at least one
    SLICE_RANGES = "slice_ranges"  # {[0:1], [0:4:2]}
    PADDING_CONFIG = "padding_config"  # 0_0x1_1_2
    METADATA = "metadata"
    FUSION_KIND = "fusion_kind"
    CONVOLUTION_KIND = "convolution_kind"
    DISTRIBUTION = "distribution"
    DOMAIN = "domain"  # {kind="sharding", entry=<sharding>, exit=<sharding>}
    PRECISION_LIST = "precision_list"  # {default,highest}
    SHAPE = "shape"
    SHAPE_LIST = "shape_list"  # {f32[2]{0}, s32[]}
    RANDOM_ALGORITHM = "random_algorithm"
    PRECISION_ALGORITHM = "precision_algorithm"
    RESULT_ACCURACY = "result_accuracy"  # {mode=highest} | {tolerance={ulps=1,rtol=0.1,atol=0}}
    INSTRUCTION_ALIASING = "instruction_aliasing"  # {{}: (0, {}), {1}: (0, {0})}
    CUSTOM_CALL_SCHEDULE = "custom_call_schedule"
    CUSTOM_CALL_API_VERSION = "custom_call_api_version"
    DEVICE_LIST = "device_list"  # {{0,1}} | [2,2]<=[4]T(..) | mesh['a'=2] {'a'}
    ORIGINAL_VALUE = "original_value"
    GROUP_MODE = "group_mode"
    # Module header only.
    ALIASING = "aliasing"  # {{0}: (1, {}, may-alias)}
    BUFFER_DONOR = "buffer_donor"  # {(0, {}), (1, {0})}
    COMPUTATION_LAYOUT = "computation_layout"  # {(f32[2]{0})->f32[2]{0}}
    ORIGINAL_VALUE_RECOVERY_TABLE = "original_value_recovery_table"


PRIMITIVE_TYPES = _words(
    "pred s1 s2 s4 s8 s16 s32 s64 u1 u2 u4 u8 u16 u32 u64 bf16 f16 f32 f64 c64 c128 f4e2m1fn f6e2m3fn f6e3m2fn f8e3m4 "
    "f8e4m3 f8e4m3fn f8e4m3b11fnuz f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0fnu token opaque"
)
"""Reserved words that start an array shape; none of them is a name (unless ``%``, ``:`` or ``=`` makes it one)."""

KEYWORDS = _words(
    "true false inf nan HloModule ENTRY ROOT FileLocations FileNames FunctionNames StackFrames maximal replicated "
    "manual last_tile_dim_replicate shard_as shard_like unknown unreduced"
)
"""The other reserved words."""

# Value vocabularies. Case counts unless the name says otherwise.
FUSION_KINDS = frozenset(("kLoop", "kInput", "kOutput", "kCustom"))
FFT_TYPES = frozenset(("FFT", "IFFT", "RFFT", "IRFFT"))
PADDING_TYPES = frozenset(("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"))
COMPARISON_DIRECTIONS = frozenset(("EQ", "NE", "GE", "GT", "LE", "LT"))
COMPARISON_TYPES = frozenset(("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"))
CONVOLUTION_KINDS = frozenset(("fprop", "wgrad", "dgrad", "unset"))
GROUP_MODES = frozenset(("cross_replica", "cross_partition", "cross_replica_and_partition", "flattened_id"))
TRANSPOSE_OPTIONS = frozenset(("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))
ALIAS_KINDS = frozenset(("may-alias", "must-alias"))
PROFILE_TYPES = frozenset((0, 1, 2, 3))
DOMAIN_KINDS = frozenset(("sharding",))

# These are compared after lowering the text.
PRECISIONS_LOWER = frozenset(("default", "high", "highest"))
DISTRIBUTIONS_LOWER = frozenset(("rng_invalid", "rng_uniform", "rng_normal"))
RANDOM_ALGORITHMS_LOWER = frozenset(("rng_default", "rng_three_fry", "rng_philox"))
RESULT_ACCURACY_MODES_LOWER = frozenset(("default", "highest"))
CUSTOM_CALL_SCHEDULES_LOWER = frozenset(("schedule_none", "schedule_latest", "schedule_earliest"))
CUSTOM_CALL_API_VERSIONS_LOWER = frozenset(  # api_version_unspecified is known too, and refused
    (
        "api_version_original",
        "api_version_status_returning",
        "api_version_status_returning_unified",
        "api_version_typed_ffi",
    )
)
PRECISION_ALGORITHMS_LOWER = _words(
    "unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 dot_f16_f16_f32 dot_bf16_bf16_bf16 "
    "dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_bf16_bf16_f32_x9 dot_tf32_tf32_f32 "
    "dot_tf32_tf32_f32_x3 dot_f32_f32_f32 dot_f64_f64_f64"
)

METADATA_FIELDS: dict[str, str] = {
    "op_type": "string",
    "op_name": "string",
    "source_file": "string",
    "source_line": "int32",
    "source_end_line": "int32",
    "source_column": "int32",
    "source_end_column": "int32",
    "profile_type": "int_list",  # each of PROFILE_TYPES
    "deduplicated_name": "string",
    "metadata_payload": "string",
    "scheduling_name": "string",
    "stack_frame_id": "int32",
}
"""Fields of ``metadata={...}``: commas between them are optional, each at most once."""

DOMAIN_FIELDS: dict[str, str] = {"kind": "string", "entry": "sharding", "exit": "sharding"}
"""Fields of ``domain={...}``; all three are required."""

WINDOW_FIELDS = frozenset(("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal"))
"""Fields of ``window={...}``, with blanks (never commas) between them."""

FILE_LOCATION_FIELDS: dict[str, str] = dict.fromkeys(
    ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column"), "int32"
)
"""Fields of an entry of the FileLocations table; all are required."""

STACK_FRAME_FIELDS: dict[str, str] = {"file_location_id": "int32", "parent_frame_id": "int32"}
"""Fields of an entry of the StackFrames table; both are required."""

UNIVERSAL_ATTRIBUTES = frozenset(
    (
        "backend_config",
        "control-predecessors",
        "frontend_attributes",
        "metadata",
        "origin",
        "parameter_replication",
        "sharding",
        "statistics",
    )
)
"""Attributes that every instruction takes."""

MODULE_ATTRIBUTES: dict[str, str] = {
    "alias_passthrough_params": "bool",
    "allow_spmd_sharding_propagation_to_output": "bool_list_or_bool",
    "allow_spmd_sharding_propagation_to_parameters": "bool_list_or_bool",
    "buffer_donor": "buffer_donor",
    "entry_computation_layout": "computation_layout",
    "frontend_attributes": "frontend_attributes",
    "input_output_alias": "aliasing",
    "is_scheduled": "bool",
    "num_partitions": "int64",
    "origin_recovery_table": "original_value_recovery_table",
    "replica_count": "int64",
}
"""Attributes of the ``HloModule`` header."""

COMPUTATION_ATTRIBUTES: dict[str, str] = {"execution_thread": "string"}
"""Attributes after a computation's closing brace."""

ATTRIBUTE_KINDS: dict[str, str] = {
    # universal
    "backend_config": "string_or_dict",
    "control-predecessors": "instruction_list",
    "frontend_attributes": "frontend_attributes",
    "metadata": "metadata",
    "origin": "original_value",
    "parameter_replication": "bool_list",
    "sharding": "sharding",
    "statistics": "statistics",
    # per opcode
    "algorithm": "precision_algorithm",  # rng-bit-generator: random_algorithm
    "api_version": "custom_call_api_version",
    "async_execution_thread": "string",
    "batch_group_count": "int64",
    "body": "computation",
    "branch_computations": "computation_list",
    "called_computations": "computation_list",
    "calls": "computation",
    "channel_id": "int64",
    "collapsed_slice_dims": "int_list",
    "condition": "computation",
    "constrain_layout": "bool",
    "convolution_kind": "convolution_kind",
    "cross_program_prefetch_index": "int32",
    "custom_call_has_side_effect": "bool",
    "custom_call_target": "string",
    "delta": "int64",
    "dim_labels": "dim_labels",
    "dimensions": "int_list",
    "direction": "comparison_direction",
    "distribution": "distribution",
    "domain": "domain",
    "dynamic_slice_sizes": "int_list",
    "epsilon": "float",
    "exponent_bits": "int64",
    "false_computation": "computation",
    "feature_group_count": "int64",
    "feature_index": "int64",
    "fft_length": "int_list",
    "fft_type": "fft_type",
    "index": "int64",
    "index_vector_dim": "int64",
    "indices_are_sorted": "bool",
    "infeed_config": "string",
    "inferred_dimension": "int64",
    "input_batching_dims": "int_list",
    "inserted_window_dims": "int_list",
    "iota_dimension": "int64",
    "is_associative": "bool",
    "is_composite": "bool",
    "is_host_transfer": "bool",
    "is_reverse": "bool",
    "is_stable": "bool",
    "k": "int64",
    "kind": "fusion_kind",
    "largest": "bool",
    "left_side": "bool",
    "lhs_batch_dims": "int_list",
    "lhs_contracting_dims": "int_list",
    "lhs_ragged_dims": "int_list",
    "literal": "literal",
    "lower": "bool",
    "mantissa_bits": "int64",
    "mode": "group_mode",
    "num_carries": "int64",
    "offset_dims": "int_list",
    "operand_batching_dims": "int_list",
    "operand_layout_constraints": "shape_list",
    "operand_precision": "precision_list",
    "outfeed_config": "string",
    "outfeed_shape": "shape",
    "output_to_operand_aliasing": "instruction_aliasing",
    "padding": "padding_config",
    "padding_type": "padding_type",
    "replica_groups": "device_list",
    "result_accuracy": "result_accuracy",
    "rhs_batch_dims": "int_list",
    "rhs_contracting_dims": "int_list",
    "rhs_group_dims": "int_list",
    "scatter": "computation",
    "scatter_dims_to_operand_dims": "int_list",
    "scatter_indices_batching_dims": "int_list",
    "schedule": "custom_call_schedule",
    "select": "computation",
    "slice": "slice_ranges",
    "slice_sizes": "int_list",  # collective-permute and its start: int_list_list
    "source_target_pairs": "int_list_list",
    "sparsity_config": "sparsity_config",
    "start_index_map": "int_list",
    "start_indices_batching_dims": "int_list",
    "to_apply": "computation",
    "transpose_a": "enum",
    "true_computation": "computation",
    "type": "comparison_type",
    "unique_indices": "bool",
    "unit_diagonal": "bool",
    "update_window_dims": "int_list",
    "use_global_device_ids": "bool",
    "window": "window",
}
"""Attribute name to the syntax of its value; where it depends on the opcode, ask :func:`attribute_kind`."""

_KIND_OVERRIDES: dict[tuple[str, str], str] = {
    ("rng-bit-generator", "algorithm"): "random_algorithm",
    ("collective-permute", "slice_sizes"): "int_list_list",
    ("collective-permute-start", "slice_sizes"): "int_list_list",
}

# Opcode to its own attributes; "!" marks a required one. An opcode that is not here has none of its own.
_ACCURACY = "result_accuracy"
_GATHER_LIKE = "!dimensions replica_groups channel_id constrain_layout use_global_device_ids"
_REDUCE_LIKE = "!to_apply replica_groups channel_id constrain_layout use_global_device_ids mode"
_BATCH_NORM = "!epsilon !feature_index"
_CHANNEL = "channel_id is_host_transfer"
_DOT = "lhs_contracting_dims rhs_contracting_dims lhs_batch_dims rhs_batch_dims operand_precision"
_OWN_ATTRIBUTES: dict[str, str] = {
    "acos": _ACCURACY,
    "acosh": _ACCURACY,
    "all-gather": _GATHER_LIKE,
    "all-gather-start": _GATHER_LIKE,
    "all-reduce": _REDUCE_LIKE,
    "all-reduce-start": _REDUCE_LIKE,
    "all-to-all": "replica_groups channel_id dimensions constrain_layout",
    "asin": _ACCURACY,
    "asinh": _ACCURACY,
    "async-done": "calls async_execution_thread",
    "async-start": "!calls async_execution_thread output_to_operand_aliasing",
    "async-update": "calls async_execution_thread",
    "atanh": _ACCURACY,
    "batch-norm-grad": _BATCH_NORM,
    "batch-norm-inference": _BATCH_NORM,
    "batch-norm-training": _BATCH_NORM,
    "broadcast": "dimensions",  # required unless the operand is a scalar
    "call": "!to_apply is_composite",
    "cbrt": _ACCURACY,
    "cholesky": "lower",
    "collective-broadcast": "replica_groups channel_id",
    "collective-permute": "!source_target_pairs channel_id slice_sizes",
    "collective-permute-start": "!source_target_pairs channel_id slice_sizes",
    "compare": "!direction type",
    "concatenate": "!dimensions",
    "conditional": "true_computation false_computation branch_computations",  # by the type of operand 0
    "convolution": (
        "!dim_labels window feature_group_count batch_group_count operand_precision convolution_kind sparsity_config"
    ),
    "copy-start": "cross_program_prefetch_index",
    "cosh": _ACCURACY,
    "cosine": _ACCURACY,
    "custom-call": (
        "!custom_call_target window dim_labels feature_group_count batch_group_count operand_layout_constraints "
        "custom_call_has_side_effect to_apply called_computations output_to_operand_aliasing padding_type literal "
        "operand_precision schedule api_version"
    ),
    "domain": "!domain",
    "dot": _DOT + " algorithm",
    "dynamic-slice": "!dynamic_slice_sizes",
    "erf": _ACCURACY,
    "exponential": _ACCURACY,
    "exponential-minus-one": _ACCURACY,
    "fft": "!fft_type !fft_length",
    "fusion": "!kind !calls output_to_operand_aliasing",
    "gather": (
        "!offset_dims !collapsed_slice_dims !start_index_map !index_vector_dim !slice_sizes indices_are_sorted "
        "operand_batching_dims start_indices_batching_dims"
    ),
    "get-dimension-size": "!dimensions",
    "get-tuple-element": "!index",
    "infeed": "infeed_config",
    "iota": "!iota_dimension",
    "log": _ACCURACY,
    "log-plus-one": _ACCURACY,
    "logistic": _ACCURACY,
    "map": "!to_apply dimensions",
    "outfeed": "outfeed_config outfeed_shape",
    "pad": "!padding",
    "ragged-all-to-all": "replica_groups channel_id dimensions",
    "ragged-dot": _DOT + " lhs_ragged_dims rhs_group_dims",
    "recv": _CHANNEL,
    "recv-done": _CHANNEL,
    "reduce": "!dimensions !to_apply",
    "reduce-precision": "!exponent_bits !mantissa_bits",
    "reduce-scatter": _REDUCE_LIKE + " !dimensions",
    "reduce-window": "!to_apply window",
    "reshape": "inferred_dimension",
    "reverse": "!dimensions",
    "rng": "!distribution",
    "rng-bit-generator": "!algorithm",
    "rng-get-and-update-state": "!delta",
    "rsqrt": _ACCURACY,
    "scaled-dot": _DOT + " algorithm",
    "scan": "!dimensions !to_apply !num_carries is_reverse is_associative",
    "scatter": (
        "!update_window_dims !inserted_window_dims !scatter_dims_to_operand_dims !index_vector_dim !to_apply "
        "indices_are_sorted unique_indices input_batching_dims scatter_indices_batching_dims"
    ),
    "select-and-scatter": "!select !scatter window",
    "send": _CHANNEL,
    "send-done": _CHANNEL,
    "set-dimension-size": "!dimensions",
    "sine": _ACCURACY,
    "sinh": _ACCURACY,
    "slice": "!slice",
    "sort": "!dimensions !to_apply is_stable",
    "sqrt": _ACCURACY,
    "tan": _ACCURACY,
    "tanh": _ACCURACY,
    "topk": "!k largest",
    "transpose": "!dimensions",
    "triangular-solve": "left_side lower unit_diagonal transpose_a",
    "while": "!condition !body",
}

# Opcodes with a fixed number of operands.
_OPERANDS: dict[int, str] = {
    0: "iota partition-id replica-id rng-get-and-update-state",
    1: (
        "abs acos acosh all-gather-done all-reduce-done asin asinh async-done async-update atanh bitcast "
        "bitcast-convert broadcast cbrt ceil cholesky collective-permute-done convert copy copy-done copy-start cosh "
        "cosine count-leading-zeros domain erf exponential exponential-minus-one fft floor get-dimension-size "
        "get-tuple-element imag infeed is-finite log log-plus-one logistic negate not opt-barrier popcnt real recv "
        "recv-done reduce-precision reshape reverse round-nearest-afz round-nearest-even rsqrt send-done sign sine "
        "sinh slice sqrt tan tanh topk transpose while"
    ),
    2: (
        "add add-dependency and atan2 compare complex convolution divide gather maximum minimum mulhi multiply or "
        "outfeed pad power remainder send set-dimension-size shift-left shift-right-arithmetic shift-right-logical "
        "stochastic-convert subtract triangular-solve xor"
    ),
    3: "batch-norm-training clamp ragged-dot select select-and-scatter",
    4: "scaled-dot",
    5: "batch-norm-grad batch-norm-inference",
}

# Opcodes with a variable number of operands: the least, and the parity where there is one.
_VARIABLE: dict[str, tuple[int, int | None]] = {
    "after-all": (0, None),
    "all-gather": (0, None),
    "all-gather-start": (0, None),
    "all-reduce": (0, None),
    "all-reduce-start": (0, None),
    "all-to-all": (0, None),
    "async-start": (0, None),
    "call": (0, None),
    "collective-broadcast": (0, None),
    "collective-permute": (0, None),  # exactly 4 with slice_sizes
    "collective-permute-start": (0, None),
    "concatenate": (0, None),
    "conditional": (2, None),  # 1 + the number of branches; none at all crashes XLA
    "custom-call": (0, None),
    "dot": (2, None),  # fewer crash XLA, more are ignored
    "dynamic-reshape": (1, None),  # 1 + the rank of the result, or XLA crashes
    "dynamic-slice": (1, None),  # 1 + rank of operand 0, or 2 with a rank 1 index
    "dynamic-update-slice": (2, None),  # 2 + rank of operand 0, or 3 with a rank 1 index
    "fusion": (0, None),
    "map": (0, None),
    "ragged-all-to-all": (0, None),
    "reduce": (0, 0),
    "reduce-scatter": (0, None),
    "reduce-window": (0, 0),
    "rng": (0, None),
    "rng-bit-generator": (1, None),  # none crashes XLA, more are ignored
    "scan": (0, None),  # as many as to_apply has parameters
    "scatter": (1, 1),
    "sort": (0, None),
    "tuple": (0, None),  # as many as the result shape has elements, where it is given
}

# opt-barrier is on XLA's own list, but its inference always fails.
_INFERRING = _words(
    "abs acos acosh add add-dependency after-all and asin asinh atan2 atanh batch-norm-grad batch-norm-inference "
    "batch-norm-training broadcast call cbrt ceil cholesky clamp compare complex concatenate conditional convolution "
    "copy cosh cosine count-leading-zeros divide domain dot erf exponential exponential-minus-one fft floor gather "
    "get-dimension-size get-tuple-element imag is-finite log log-plus-one logistic map maximum minimum mulhi multiply "
    "negate not or pad partition-id popcnt power ragged-dot real reduce reduce-window remainder replica-id "
    "reverse round-nearest-afz round-nearest-even rsqrt scaled-dot scan scatter select select-and-scatter "
    "set-dimension-size shift-left shift-right-arithmetic shift-right-logical sign sine sinh sort sqrt subtract tan "
    "tanh topk transpose triangular-solve tuple while xor"
)

BASE_OPCODES: frozenset[str] = frozenset(
    ["constant", "parameter", *_VARIABLE, *(name for names in _OPERANDS.values() for name in names.split())]
)
"""The 133 opcodes proper."""

ASYNC_SUFFIXES: dict[str, str] = {"-start": "async-start", "-update": "async-update", "-done": "async-done"}
"""Suffix of a sugared async opcode to the opcode that it stands for: ``add-start`` is an async-start around an add."""

UNSUGARED_FAMILIES = frozenset(("all-gather", "all-reduce", "collective-permute", "copy", "recv", "send"))
"""Opcodes whose asynchronous forms are opcodes of their own (as far as they exist): these take no suffix as sugar."""

_SUGARED: dict[str, tuple[str, str]] = {
    base + suffix: (opcode, base)
    for base in BASE_OPCODES - UNSUGARED_FAMILIES
    for suffix, opcode in ASYNC_SUFFIXES.items()
    if base + suffix not in BASE_OPCODES
}

OPCODES: frozenset[str] = BASE_OPCODES.union(_SUGARED)
"""Every word that XLA's parser takes for an opcode, the sugared async forms included."""


@dataclass(frozen=True)
class OpcodeSpec:
    """What the parser asks of an instruction with this opcode.

    ``operand_counts`` is None where the number is free from ``minimum_operands`` on (and even or odd, where
    ``operand_parity`` is 0 or 1). ``infers_shape`` says that the result shape may be left out.
    For a sugared opcode (``add-start``), ``wrapped`` is the base opcode (``add``).
    """

    opcode: str
    allowed: frozenset[str]
    required: frozenset[str]
    operand_counts: frozenset[int] | None
    minimum_operands: int = 0
    operand_parity: int | None = None
    infers_shape: bool = False
    wrapped: str | None = None


_specs: dict[str, OpcodeSpec | None] = {}


def split_opcode(name: str) -> tuple[str, str | None] | None:
    """The opcode that ``name`` stands for and, for a sugared async form, the opcode that it wraps; None if unknown."""
    if name in BASE_OPCODES:
        return name, None
    return _SUGARED.get(name)


def opcode_spec(opcode: str) -> OpcodeSpec | None:
    """The rules of ``opcode``, or None if the parser does not know it."""
    try:
        return _specs[opcode]
    except KeyError:
        spec = _specs[opcode] = _build(opcode)
        return spec


def attribute_kind(opcode: str, name: str) -> str | None:
    """The value syntax of attribute ``name`` on ``opcode``, or None if the opcode does not take it."""
    spec = opcode_spec(opcode)
    if spec is None or name not in spec.allowed:
        return None
    return _KIND_OVERRIDES.get((spec.wrapped or spec.opcode, name)) or ATTRIBUTE_KINDS[name]


def operand_dependent_attributes(
    opcode: str, element_type: str, rank: int | None
) -> tuple[frozenset[str], frozenset[str]] | None:
    """Allowed and required own attributes of ``conditional`` and ``broadcast``, by the shape of their first operand.

    ``rank`` is None for a tuple. None for every other opcode, and for a conditional on something else than a scalar of
    pred or s32, which is refused.
    """
    if opcode == "broadcast":
        dimensions = frozenset(("dimensions",))
        return dimensions, frozenset() if rank == 0 else dimensions
    if opcode != "conditional" or rank != 0 or element_type not in ("pred", "s32"):
        return None
    names = ("true_computation", "false_computation") if element_type == "pred" else ("branch_computations",)
    return frozenset(names), frozenset(names)


def _own(opcode: str) -> tuple[frozenset[str], frozenset[str]]:
    words = _OWN_ATTRIBUTES.get(opcode, "").split()
    return frozenset(w.lstrip("!") for w in words), frozenset(w[1:] for w in words if w[0] == "!")


def _build(opcode: str) -> OpcodeSpec | None:
    split = split_opcode(opcode)
    if split is None:
        return None
    base, wrapped = split
    if wrapped is not None:
        thread = frozenset(("async_execution_thread",))
        if base != "async-start":
            return OpcodeSpec(base, UNIVERSAL_ATTRIBUTES | thread, frozenset(), frozenset((1,)), 1, wrapped=wrapped)
        own, required = _own(wrapped)
        allowed = UNIVERSAL_ATTRIBUTES | own | thread | {"output_to_operand_aliasing"}
        return OpcodeSpec(base, allowed, required, None, wrapped=wrapped)
    own, required = _own(base)
    allowed = UNIVERSAL_ATTRIBUTES | own
    infers = base in _INFERRING
    if base in _VARIABLE:
        minimum, parity = _VARIABLE[base]
        return OpcodeSpec(base, allowed, required, None, minimum, parity, infers)
    for count, names in _OPERANDS.items():
        if base in names.split():
            return OpcodeSpec(base, allowed, required, frozenset((count,)), count, None, infers)
    return OpcodeSpec(base, allowed, required, frozenset((0,)), 0, None, infers)  # constant, parameter: not operands
