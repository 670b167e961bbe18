# SPDX-License-Identifier: GPL-2.0-or-later
"""Moments in UTC as messages for people name them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_text(moment_s: int) -> str:
    """Return a moment in UTC to the minute, as 2026-11-28 05:14.

    Args:
        moment_s: seconds since 1970.
    """
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%d %H:%M}"
