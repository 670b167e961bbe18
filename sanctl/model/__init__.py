"""Frozen value types. No I/O."""
