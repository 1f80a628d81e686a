"""Other machines that run modules: real XLA, in a process of its own."""
