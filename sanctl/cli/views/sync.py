# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds JSON data and table columns of resyncs and verifies: bar, time left; computes no rate."""

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
    """Return a time in UTC as text; None for 0: it has not come."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else None


def running_sync_data(running: RunningSync) -> sync.Running:
    """Return a running or waiting resync or verify for the JSON output."""
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


def verify_data(result: VerifyResult) -> sync.Verification:
    """Return a verify for the JSON output."""
    return {
        "result": result.result,
        "began": time_text(result.began_s),
        "ended": time_text(result.ended_s),
        "different_bytes": result.found_kib * 1024,
        "ranges": [
            {"first": int(first), "bytes": int(length)}
            for first, _, length in (each.partition("+") for each in result.ranges)
        ],
    }


def resync_text(latest: ResyncRecord) -> str:
    """Return the latest resync in a few words."""
    if latest.stage != DONE:
        return f"{latest.kind} ({latest.why}), still running"
    return (
        f"{latest.kind} ({latest.why}), {format_bytes(latest.changed_kib * 1024)} marked, "
        f"{format_bytes(latest.received_kib * 1024)} received, ended {time_text(latest.ended_s)}"
    )


def verify_text(result: VerifyResult) -> str:
    """Return a verify in a few words."""
    amount = f" {format_bytes(result.found_kib * 1024)}" if result.found_kib else ""
    return f"{result.result}{amount}, {time_text(result.ended_s or result.began_s)}"


def progress_bar(percent: float) -> str:
    """Return a bar and the percentage that is done."""
    full = int(percent * _BAR / 100)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {percent:3.0f}%"


def duration_text(seconds: int | None) -> str:
    """Return a duration as h:mm:ss or m:ss."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
