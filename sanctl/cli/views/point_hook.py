# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds JSON data and text of a schedule's hook, and of what became of a restore point's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sanctl.model.point_hook import PointHook
from sanctl.model.restore_point import RestorePoint

if TYPE_CHECKING:
    from sanctl.cli.documents import snapshot as snapshot_documents


def consistency(point: RestorePoint) -> str:
    """Return of what kind a restore point is: `application` or `crash`."""
    return "application" if point.is_application_consistent else "crash"


def consistency_text(point: RestorePoint) -> str:
    """Return the same with the hook that made it so, or that failed to."""
    found = consistency(point)
    if point.hook is None:
        return found
    text = (
        f"{found}: hook {point.hook.name} failed ({point.hook.before})"
        if point.hook.before
        else f"{found}, by hook {point.hook.name}"
    )
    if point.hook.after:
        text += f"; AFTER IT THE HOOK FAILED ({point.hook.after}): the application may be quiet"
    return text


def result_data(point: RestorePoint) -> snapshot_documents.PointHookResult | None:
    """Return what became of a restore point's hook for the JSON output."""
    hook = point.hook
    if hook is None:
        return None
    return {"name": hook.name, "before": hook.before or None, "after": hook.after or None}


def hook_data(hook: PointHook | None) -> snapshot_documents.ScheduleHook | None:
    """Return a schedule's hook for the JSON output."""
    if hook is None:
        return None
    return {"name": hook.name, "limit_s": hook.limit_s, "or_crash": hook.or_crash}


def hook_text(hook: PointHook) -> str:
    """Return a schedule's hook in a few words."""
    more = ", or crash-consistent" if hook.or_crash else ""
    return f"hook {hook.name} for {hook.limit_s} s at most{more}"
