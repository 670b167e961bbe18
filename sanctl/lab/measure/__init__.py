# SPDX-License-Identifier: GPL-2.0-or-later
"""Measurements: the ledger, the timeline and their pictures."""
