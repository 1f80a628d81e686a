"""Proves rewrites: the rest untouched, each site moving the right data, both modules agreeing when run."""
