"""One function an op; every module here is imported, and its functions are found by opcode."""
