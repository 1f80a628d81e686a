"""Result shapes of instructions: inferred where HLO text leaves them out, checked where it states them.

>>> from hlo_cp2ag.ir.shape import parse_shape
>>> infer_shape("add", [parse_shape("f32[4]"), parse_shape("bf16[4]")], {}, {}).to_text()
'f32[4]{0}'
"""

from .check import check_shape
from .errors import ShapeInferenceError
from .infer import infer_shape
from .meaning import check_layout, check_meaning

__all__ = ["ShapeInferenceError", "check_layout", "check_meaning", "check_shape", "infer_shape"]
