"""Proof that two modules do the same."""
