# SPDX-License-Identifier: GPL-2.0-or-later
"""What open-iscsi has on a storage node that is a host itself: records of targets, sessions."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """A path that open-iscsi knows by discovery: a target at a portal, `ADDRESS:PORT`."""

    target: str
    portal: str


class Session(NamedTuple):
    """A session that there is, whether it works or is in recovery."""

    sid: int
    record: Record
