"""Measurements: the ledger, the timeline and their pictures."""
