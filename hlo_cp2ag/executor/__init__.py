"""The numpy executor: runs HLO on R x P simulated devices, every device at once.

How the parts fit together, for whoever adds an op:

- **Values** (`values.py`). An array value is a numpy array with a leading *lane* axis: `[lanes, *dimensions]`. The axis
  has length 1 while all devices agree, else `context.lanes` (R * P at the top level). Element types are stored as
  `hlo_cp2ag.ir.element_types.dtype_of` says (pred as bool, bf16 / f8 / s4 as ml_dtypes). Tuples are Python tuples of
  values, tokens are `TOKEN`. Values are never changed in place: an op that wants to write makes a copy first.
- **Ops** (`registry.py`). An op is one small function named as the op, registered with its opcode; every module in
  `ops/` is found by itself:

      @op("reverse")
      def reverse(context: Context, instruction: Instruction, operand: Array) -> Array:
          "Semantics: XLA operation semantics, Rev. ..."
          dimensions = cast("tuple[int, ...]", instruction.attribute("dimensions"))
          return np.flip(operand, [d + 1 for d in dimensions])

  It gets its operands in order, and returns a value whose lane axes have length 1 or that of the longest operand's.
  It treats the lane axis as a batch: nothing but the collectives and the ids may look at which lane is which. Operands
  may have lane axes of different lengths (1 and n); `align(a, b)` gives them the same one without copying.
- **Shapes.** `instruction.shape` is the result's, `array_shape(instruction)` the same as an `ArrayShape`,
  `context.operand_shapes(instruction)` the operands' (with layouts). Shapes have been checked before anything runs.
- **Arithmetic in an element type** (`arithmetic.py`). `lift(array, element_type)` gives the array in the type that XLA
  computes in (f32 for bf16, f16, f8; int32 for s4 ...), `lower(array, element_type)` rounds or wraps back.
- **Called computations.** `context.computation(instruction, "to_apply")` and `context.computations(instruction,
  "branch_computations")` resolve names and inline computations alike; `context.call(computation, args)` runs one on the
  same lanes. `context.apply(computation, *arrays)` runs a computation of scalars on every element of its arrays at once
  (reducers, comparators, scatter combiners): the arrays broadcast to one shape, elements take the place of lanes.
  `context.simple_reducer(computation)` says "add", "maximum", ... if the computation does nothing but that to its two
  parameters, so that numpy's own reduction can be used; `ops.elementwise.BINARY[opcode](a, b, element_type)` is the
  function.
- **Masks.** While some lanes are in another branch, `context.active` is a bool array `[lanes]`; the others compute
  along, and what they compute is thrown away. Ops without groups need not care.
- **Errors.** `raise execution_error(instruction, "what is wrong")`; what can be said before the run belongs into
  `validate.py`, where a function registered with `@precheck("opcode")` may look at an instruction.
"""
