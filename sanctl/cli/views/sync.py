# SPDX-License-Identifier: GPL-2.0-or-later
"""What commands show of resyncs and verifies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sanctl.model.names import format_bytes
from sanctl.model.resync_record import DONE, ResyncRecord, RunningSync
from sanctl.model.verify_result import VerifyResult

if TYPE_CHECKING:
    from sanctl.cli.documents import sync

_BAR = 20


def time_text(seconds: int) -> str | None:
    """Write a moment in UTC; None for one that has not come."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else None


def running_sync_data(running: RunningSync) -> sync.Running:
    """Return what runs for the JSON output."""
    return {
        "kind": running.kind,
        "waits": running.waits or None,
        "left_bytes": running.left_kib * 1024,
        "total_bytes": running.total_kib * 1024,
        "rate": running.rate_kib_s * 1024,
        "done_percent": round(running.done_percent, 1),
        "left_s": running.left_s,
        "began": time_text(running.began_s),
    }


def resync_data(latest: ResyncRecord) -> sync.Resync:
    """Return the latest resync for the JSON output."""
    return {
        "kind": latest.kind,
        "why": latest.why,
        "began": time_text(latest.began_s),
        "ended": time_text(latest.ended_s),
        "changed_bytes": latest.changed_kib * 1024,
        "received_bytes": latest.received_kib * 1024 if latest.stage == DONE else None,
    }


def verify_data(told: VerifyResult) -> sync.Verification:
    """Return a verify for the JSON output."""
    return {
        "result": told.result,
        "began": time_text(told.began_s),
        "ended": time_text(told.ended_s),
        "different_bytes": told.found_kib * 1024,
        "ranges": [
            {"first": int(first), "bytes": int(length)}
            for first, _, length in (each.partition("+") for each in told.ranges)
        ],
    }


def resync_text(latest: ResyncRecord) -> str:
    """Say the latest resync in a few words."""
    if latest.stage != DONE:
        return f"{latest.kind} ({latest.why}), still running"
    return (
        f"{latest.kind} ({latest.why}), {format_bytes(latest.changed_kib * 1024)} marked, "
        f"{format_bytes(latest.received_kib * 1024)} received, ended {time_text(latest.ended_s)}"
    )


def verify_text(told: VerifyResult) -> str:
    """Say a verify in a few words."""
    amount = f" {format_bytes(told.found_kib * 1024)}" if told.found_kib else ""
    return f"{told.result}{amount}, {time_text(told.ended_s or told.began_s)}"


def progress_bar(percent: float) -> str:
    """Draw how much is done."""
    full = int(percent * _BAR / 100)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {percent:3.0f}%"


def duration_text(seconds: int | None) -> str:
    """Write how long something takes."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
