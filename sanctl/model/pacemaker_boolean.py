# SPDX-License-Identifier: GPL-2.0-or-later
"""Which words of the CIB Pacemaker reads as true, and which as false (crm_str_to_boolean)."""

from __future__ import annotations

_TRUE = frozenset({"true", "yes", "on", "1", "y"})
_FALSE = frozenset({"false", "no", "off", "0", "n"})


def is_true(word: str) -> bool:
    """Whether Pacemaker reads it as true."""
    return word.lower() in _TRUE


def is_false(word: str) -> bool:
    """Whether Pacemaker reads it as false. A word that is not true may be neither."""
    return word.lower() in _FALSE
