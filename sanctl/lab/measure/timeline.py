# SPDX-License-Identifier: GPL-2.0-or-later
"""When each milestone of a failover happened, from the nodes' journals on one clock. Pure.

The guests' clocks follow this machine's; what they are off is measured apart and subtracted
(`skew_s`). Only the first occurrence after the fault counts: later ones belong to the return of the
node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Milestone(StrEnum):
    """The milestones of a failover, in the order in which they normally come."""

    POWER_CUT = "power cut"
    MOVE_ASKED = "move asked"
    TOKEN_LOST = "token lost"  # noqa: S105 - corosync's token
    MEMBERSHIP = "new membership"
    FENCING_ASKED = "fencing asked"
    DRBD_NOTICE = "DRBD notices"
    PEER_OUTDATED = "DRBD's handler done"
    FENCING_DONE = "fenced"
    DEMOTE_BEGIN = "demote begins"
    DEMOTE_END = "demoted"
    PROMOTE_ASKED = "promote asked"
    PROMOTE_BEGIN = "promote begins"
    ALUA_ACTIVE = "ALUA active"
    PROMOTE_END = "promoted"
    FIRST_WRITE = "first write"
    POWER_ON = "power on"
    RESYNC_BEGIN = "resync begins"
    RESYNC_END = "resync done"


# What the time before a milestone is spent in: where a shorter failover has to save.
SPENT_IN: Mapping[Milestone, str] = {
    Milestone.TOKEN_LOST: "corosync token timeout",
    Milestone.MEMBERSHIP: "corosync consensus",
    Milestone.FENCING_ASKED: "Pacemaker: election, transition, fencing request",
    Milestone.DRBD_NOTICE: "DRBD ping-int + ping-timeout",
    Milestone.PEER_OUTDATED: "DRBD fence-peer handler",
    Milestone.FENCING_DONE: "fence_ipmilan: off, confirmed",
    Milestone.DEMOTE_BEGIN: "Pacemaker: transition",
    Milestone.DEMOTE_END: "agent: demote",
    Milestone.PROMOTE_ASKED: "Pacemaker: transition",
    Milestone.PROMOTE_BEGIN: "start of the agent",
    Milestone.ALUA_ACTIVE: "agent: DRBD primary, dm table, ALUA",
    Milestone.PROMOTE_END: "agent: the rest of promote",
    Milestone.FIRST_WRITE: "host: multipath path check",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One journal entry, with the fields that are used here."""

    node: str
    at_s: float
    identifier: str
    message: str
    action: str = ""
    step: str = ""
    device: str = ""
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A milestone that was reached: its time on the common clock, and the node."""

    mark: Milestone
    at_s: float
    node: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One row of a failover's breakdown: the time up to a milestone."""

    mark: Milestone
    node: str
    after_s: float  # since the fault
    took_s: float  # since the milestone before
    spent_in: str


@dataclass(frozen=True, slots=True)
class _Pattern:
    identifier: str
    regex: re.Pattern[str]
    mark: Milestone


# Texts of Corosync 3.1, Pacemaker 2.1 and 3.0, DRBD 8.4 and 9. {device} and {node} (the one
# that fails) are filled in.
_PATTERNS: tuple[tuple[str, str, Milestone], ...] = (
    ("corosync", r"\[TOTEM ?\] A processor failed", Milestone.TOKEN_LOST),
    ("corosync", r"\[TOTEM ?\] A new membership .*Members left", Milestone.MEMBERSHIP),
    ("corosync", r"\[TOTEM ?\] A new membership .* formed\. Members$", Milestone.MEMBERSHIP),
    (
        "pacemaker-controld",
        r"Requesting fencing \(\w+\) (targeting|of) node {node}\b",
        Milestone.FENCING_ASKED,
    ),
    (
        "pacemaker-fenced",
        r"Requesting peer fencing \(\w+\) targeting {node}\b",
        Milestone.FENCING_ASKED,
    ),
    (
        "pacemaker-fenced",
        r"Operation '\w+' targeting {node} by .*: OK",
        Milestone.FENCING_DONE,
    ),
    ("pacemaker-controld", r"Peer {node} was terminated \(\w+\) by .*: OK", Milestone.FENCING_DONE),
    (
        "pacemaker-controld",
        r"Requesting local execution of promote operation for {device}(:\d+)? ",
        Milestone.PROMOTE_ASKED,
    ),
    (
        "kernel",
        r"drbd {device}\b.*(PingAck did not arrive|sock was shut down)",
        Milestone.DRBD_NOTICE,
    ),
    (
        "kernel",
        r"drbd {device}\b.*conn\( ?Connected -> (NetworkFailure|BrokenPipe|Timeout|TearDown)",
        Milestone.DRBD_NOTICE,
    ),
    (
        "kernel",
        r"drbd {device}\b.*(fence-peer helper returned|helper command: .* fence-peer .*exit code)",
        Milestone.PEER_OUTDATED,
    ),
    (
        "kernel",
        r"drbd{minor}\b.*(Began resync as SyncSource|resync as SyncSource)",
        Milestone.RESYNC_BEGIN,
    ),
    ("kernel", r"drbd{minor}\b.*Resync done \(", Milestone.RESYNC_END),
)


def parse_journal(text: str, node: str, skew_s: float = 0.0) -> list[Entry]:
    """Parse the output of `journalctl -o json`; `skew_s` is how far the node's clock is ahead.

    Lines that are no JSON object are skipped: a journal read from a node that loses its power may
    end in the middle of a line.
    """
    entries = []
    for line in text.splitlines():
        try:
            raw = json.loads(line)
        except json.JSONDecodeError:
            continue
        if not isinstance(raw, dict) or "__REALTIME_TIMESTAMP" not in raw:
            continue
        # The sender's own time where the entry has it; journald may be late under load.
        stamp = raw.get("_SOURCE_REALTIME_TIMESTAMP") or raw["__REALTIME_TIMESTAMP"]
        entries.append(
            Entry(
                node=node,
                at_s=int(_text(stamp)) / 1e6 - skew_s,
                identifier=_text(raw.get("SYSLOG_IDENTIFIER", "")),
                message=_text(raw.get("MESSAGE", "")),
                action=_text(raw.get("SANCTL_ACTION", "")),
                step=_text(raw.get("SANCTL_STEP", "")),
                device=_text(raw.get("SANCTL_DEVICE", "")),
                duration_s=_milliseconds(_text(raw.get("SANCTL_DURATION_MS", ""))),
            )
        )
    return entries


def _text(value: object) -> str:
    """Return a journal field as text: it may be null, a list of bytes, or a list of values."""
    match value:
        case None:
            return ""
        case [int(), *_]:
            return bytes(each for each in value if isinstance(each, int)).decode(errors="replace")
        case [first, *_]:
            return str(first)
        case _:
            return str(value)


def _milliseconds(text: str) -> float:
    try:
        return float(text) / 1000
    except ValueError:
        return 0.0


def find_events(entries: Iterable[Entry], device: str, minor: int, failed_node: str) -> list[Event]:
    """Return the milestones of a failover of `device` away from `failed_node`, sorted by time."""
    words = {"device": re.escape(device), "minor": str(minor)}
    # Where no node fails, the pattern must match no name.
    words["node"] = re.escape(failed_node) or "(?!)"
    patterns = [
        _Pattern(identifier, re.compile(_fill(regex, words)), mark)
        for identifier, regex, mark in _PATTERNS
    ]
    events: list[Event] = []
    for entry in entries:
        events.extend(
            Event(mark=pattern.mark, at_s=entry.at_s, node=entry.node, text=entry.message)
            for pattern in patterns
            if entry.identifier == pattern.identifier and pattern.regex.search(entry.message)
        )
        if entry.identifier == "sanctl" and entry.device == device:
            events.extend(_agent_events(entry))
    return sorted(events, key=lambda event: event.at_s)


def _fill(regex: str, words: Mapping[str, str]) -> str:
    # Not str.format: the braces of a regex are its own.
    for name, value in words.items():
        regex = regex.replace("{" + name + "}", value)
    return regex


def _agent_events(entry: Entry) -> list[Event]:
    """Return the milestones in one line of the device agent: a finished step or action."""

    def event(mark: Milestone, at_s: float) -> Event:
        return Event(mark=mark, at_s=at_s, node=entry.node, text=entry.message)

    began_s = entry.at_s - entry.duration_s
    begin, end = {
        "promote": (Milestone.PROMOTE_BEGIN, Milestone.PROMOTE_END),
        "demote": (Milestone.DEMOTE_BEGIN, Milestone.DEMOTE_END),
    }.get(entry.action, (None, None))
    if begin is None or end is None:
        return []
    events = [event(begin, began_s)]
    if entry.step in ("", "done", "end"):
        events.append(event(end, entry.at_s))
    elif entry.action == "promote" and "alua" in entry.step.lower():
        events.append(event(Milestone.ALUA_ACTIVE, entry.at_s))
    return events


def build_stages(events: Iterable[Event], begin: Event, end: Event) -> list[Stage]:
    """Return the breakdown between two events: the first of each milestone, in order of time."""
    first: dict[Milestone, Event] = {begin.mark: begin}
    for event in sorted(events, key=lambda each: each.at_s):
        if begin.at_s <= event.at_s <= end.at_s:
            first.setdefault(event.mark, event)
    first[end.mark] = end
    stages: list[Stage] = []
    before_s = begin.at_s
    for event in sorted(first.values(), key=lambda each: each.at_s):
        stages.append(
            Stage(
                mark=event.mark,
                node=event.node,
                after_s=event.at_s - begin.at_s,
                took_s=event.at_s - before_s,
                spent_in=SPENT_IN.get(event.mark, ""),
            )
        )
        before_s = event.at_s
    return stages


def agent_steps(entries: Iterable[Entry], device: str, action: str) -> list[tuple[str, str, float]]:
    """Return (node, step, seconds) of each step the agent logged for an action."""
    return [
        (entry.node, entry.step, entry.duration_s)
        for entry in entries
        if (entry.identifier, entry.device, entry.action) == ("sanctl", device, action)
        and entry.step
    ]


def resync_bytes(entries: Sequence[Entry], minor: int, after_s: float) -> int | None:
    """Return how much the first resync after a time had to copy, from DRBD's kernel log."""
    size = re.compile(rf"drbd{minor}\b.*Began resync as SyncSource \(will sync (\d+) KB")
    for entry in sorted(entries, key=lambda each: each.at_s):
        found = size.search(entry.message) if entry.identifier == "kernel" else None
        if found and entry.at_s >= after_s:
            return int(found[1]) * 1024
    return None
