"""HLO text to `ir` and back: the outline, the grammar, values, the checker, the printer."""
