# SPDX-License-Identifier: GPL-2.0-or-later
"""Causes one crash or planned move under a ledger, and measures pause, stages and resync."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sanctl.errors import NotConverged, Problem
from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator, LedgerRun
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.measure import kernel_audit, ledger_latency, timeline
from sanctl.lab.measure.ledger_writer import BLOCK_BYTES, Record
from sanctl.lab.measure.status_findings import has_recovered
from sanctl.lab.measure.timeline import Event, Milestone
from sanctl.lab.measure.trial import Resync, Sessions, Trial, TrialKind

_TAKEOVER_DEADLINE_S = 120.0
_RETURN_DEADLINE_S = 180.0
_POWER_BACK_DEADLINE_S = 30.0
_AL_EXTENT_BLOCKS = 4 * 2**20 // BLOCK_BYTES
# The journal is read from a little before the fault, against clocks that differ by a little.
_MARGIN_S = 1.0

PrintLine = Callable[[str], None]
ShowLedger = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLoad:
    """A device with a ledger running on it, seen from a host."""

    bed: LabSession
    host: Initiator
    run: LedgerRun
    device: str
    minor: int
    target: str
    print_line: PrintLine
    show_ledger: ShowLedger  # gets the ledger's state about twice a second

    def peer_of(self, node: str) -> str:
        """Return the other storage node."""
        return next(other.name for other in self.bed.storage if other.name != node)

    def sessions(self) -> dict[str, str]:
        """Return the host's session ids by portal."""
        return self.host.sessions(self.target)


def measure_crash(load: LedgerLoad) -> Trial:
    """Cut the power of the active node; return when it is back and in sync.

    Raises:
        NotConverged: the host got no answer again, or the node did not come back in time.
    """
    bed, device = load.bed, load.device
    lost = collect.active_node(bed, device)
    survivor = load.peer_of(lost)
    ids_before = load.sessions()
    logins_before = collect.accepted_logins(bed, survivor, load.target)
    violations: list[str] = []
    with load.host.watch_ledger(load.run) as states:
        await_writes(load, states)
        began_s = bed.cut_power(lost)
        load.print_line(f"power of {lost} cut")
        _await_resumption(load, states)
    load.print_line(f"{survivor} has taken over")
    violations += kernel_audit.violations(collect.kernel_views(bed))
    logins_after = collect.accepted_logins(bed, survivor, load.target)
    powered_s = _await_power(load, lost)
    wait_for(
        f"{lost} to be back and in sync",
        lambda: collect.is_in_sync(bed, survivor, device),
        within_s=_RETURN_DEADLINE_S,
        every_s=1.0,
    )
    load.print_line(f"{lost} is back and in sync")
    await_healthy(bed, survivor)
    ids_after = wait_for(
        "all sessions of the host", lambda: _as_many(load.sessions(), ids_before), within_s=60
    )
    violations += kernel_audit.violations(collect.kernel_views(bed))
    ended_s = time.time()
    records = load.host.fetch_log(load.run)[1]
    entries = collect.journals(bed, [node.name for node in bed.cluster], began_s - _MARGIN_S)
    pause = ledger_latency.find_pause(records, began_s - _MARGIN_S, began_s + _TAKEOVER_DEADLINE_S)
    events = timeline.find_events(entries, device, load.minor, lost)
    cut = Event(mark=Milestone.POWER_CUT, at_s=began_s, node=lost)
    first = Event(mark=Milestone.FIRST_WRITE, at_s=pause.ended_wall_s, node=load.host.name)
    extra = [cut, first, Event(mark=Milestone.POWER_ON, at_s=powered_s, node=lost)]
    events = sorted([*events, *extra], key=lambda event: event.at_s)
    return Trial(
        kind=TrialKind.CRASH,
        device=device,
        from_node=lost,
        to_node=survivor,
        began_s=began_s,
        ended_s=ended_s,
        pause=pause,
        stages=tuple(timeline.build_stages(events, cut, first)),
        agent_steps=_steps(
            entries,
            device,
            node=survivor,
            actions=("promote",),
            begin_s=began_s,
            end_s=pause.ended_wall_s,
        ),
        events=tuple(events),
        sessions=Sessions(
            ids_before=ids_before,
            ids_after=ids_after,
            survivor_logins_before=logins_before,
            survivor_logins_after=logins_after,
        ),
        is_fenced=_was_fenced_first(events, began_s, survivor),
        resync=_measure_resync(
            load, survivor, entries=entries, events=events, records=records, began_s=began_s
        ),
        violations=tuple(violations),
    )


def events_text(trial: Trial) -> str:
    """Return the events of a trial, one in a line: the seconds after its begin, what, and where."""
    return "\n".join(
        f"{event.at_s - trial.began_s:9.3f} s {event.node:4} {event.mark}: {event.text}"
        for event in trial.events
    )


def measure_move(load: LedgerLoad, to: str) -> Trial:
    """Move the device to another node as an administrator does.

    Raises:
        CommandError: `sanctl device move` failed.
    """
    bed, device = load.bed, load.device
    source = collect.active_node(bed, device)
    ids_before = load.sessions()
    logins_before = collect.accepted_logins(bed, to, load.target)
    with load.host.watch_ledger(load.run) as states:
        await_writes(load, states)
        began_s = time.time()
        load.print_line(f"moving {device} from {source} to {to}")
        bed.sh(source, f"sanctl device move {device} --to {to}", timeout_s=120)
        await_writes(load, states)
    violations = kernel_audit.violations(collect.kernel_views(bed))
    ended_s = time.time()
    records = load.host.fetch_log(load.run)[1]
    entries = collect.journals(bed, [node.name for node in bed.cluster], began_s - _MARGIN_S)
    pause = ledger_latency.find_pause(records, began_s, ended_s)
    asked = Event(mark=Milestone.MOVE_ASKED, at_s=began_s, node=source)
    first = Event(mark=Milestone.FIRST_WRITE, at_s=pause.ended_wall_s, node=load.host.name)
    events = timeline.find_events(entries, device, load.minor, failed_node="")
    events = sorted([*events, asked, first], key=lambda event: event.at_s)
    return Trial(
        kind=TrialKind.MOVE,
        device=device,
        from_node=source,
        to_node=collect.active_node(bed, device),
        began_s=began_s,
        ended_s=ended_s,
        pause=pause,
        stages=tuple(timeline.build_stages(events, asked, first)),
        agent_steps=_steps(
            entries,
            device,
            node="",
            actions=("demote", "promote"),
            begin_s=began_s,
            end_s=ended_s,
        ),
        events=tuple(events),
        sessions=Sessions(
            ids_before=ids_before,
            ids_after=load.sessions(),
            survivor_logins_before=logins_before,
            survivor_logins_after=collect.accepted_logins(bed, to, load.target),
        ),
        violations=tuple(violations),
    )


def await_healthy(bed: LabSession, node: str) -> None:
    """Wait until `sanctl status` on a node reports no finding that a fault does not leave."""

    def is_healthy() -> bool:
        answer = bed.sh(node, "sanctl status", timeout_s=30, ok=(0, 1))
        return has_recovered(answer.status, answer.stdout)

    wait_for(
        "a healthy cluster (sanctl status)",
        is_healthy,
        within_s=_RETURN_DEADLINE_S,
        every_s=2.0,
    )


def await_writes(load: LedgerLoad, states: Iterator[dict[str, Any]]) -> None:
    """Wait until the ledger is writing."""
    _follow(load, states, lambda state: state["silent_s"] < 0.5 and state["rate"] > 0)


def _await_resumption(load: LedgerLoad, states: Iterator[dict[str, Any]]) -> None:
    """Wait until no write was answered for a second, and then until writes are answered again."""
    _follow(load, states, lambda state: state["silent_s"] > 1.0)
    await_writes(load, states)


def _follow(
    load: LedgerLoad, states: Iterator[dict[str, Any]], is_reached: Callable[[dict[str, Any]], bool]
) -> None:
    deadline = time.monotonic() + _TAKEOVER_DEADLINE_S
    state: dict[str, Any] = {}
    for state in states:
        load.show_ledger(state)
        if is_reached(state):
            return
        if time.monotonic() > deadline:
            break
    raise NotConverged(
        Problem(
            "SAN-DEMO-004",
            f"{load.host.name} on {load.device}: the ledger did not reach the awaited state "
            f"in {_TAKEOVER_DEADLINE_S:g} s; its last state: {state or 'none'}",
        )
    )


def _await_power(load: LedgerLoad, node: str) -> float:
    """Wait until fencing has switched a node on, or switch it on; return when it had power."""
    try:
        since_s = wait_for(
            f"the power of {node}",
            lambda: load.bed.powered_since_s(node),
            within_s=_POWER_BACK_DEADLINE_S,
        )
        load.print_line(f"{node} was switched on by fencing")
    except NotConverged:
        since_s = time.time()
        load.bed.ensure_power(node)
        load.print_line(f"power of {node} switched on")
    return since_s


def _as_many(sessions: dict[str, str], wanted: Mapping[str, str]) -> dict[str, str] | None:
    return sessions if len(sessions) >= len(wanted) else None


def _was_fenced_first(events: list[Event], began_s: float, survivor: str) -> bool:
    """Whether the takeover waited for the fencing: DRBD became primary only after it.

    By the survivor's journal alone. The lost node has a new clock since it booted, and a promotion
    there right before the fault may seem to be after it.
    """
    seen = [event for event in events if event.node == survivor and event.at_s > began_s]
    fenced = [event.at_s for event in seen if event.mark is Milestone.FENCING_DONE]
    promoted = [event.at_s for event in seen if event.mark is Milestone.PROMOTE_END]
    return bool(fenced and promoted) and min(fenced) <= min(promoted)


def _steps(
    entries: list[timeline.Entry],
    device: str,
    *,
    node: str,
    actions: tuple[str, ...],
    begin_s: float,
    end_s: float,
) -> tuple[tuple[str, str, float], ...]:
    within = [
        entry
        for entry in sorted(entries, key=lambda each: each.at_s)
        if begin_s <= entry.at_s <= end_s + _MARGIN_S and node in ("", entry.node)
    ]
    return tuple(
        (where, f"{action}: {step}", took_s)
        for action in actions
        for where, step, took_s in timeline.agent_steps(within, device, action)
    )


def _measure_resync(
    load: LedgerLoad,
    survivor: str,
    *,
    entries: list[timeline.Entry],
    events: list[Event],
    records: list[Record],
    began_s: float,
) -> Resync | None:
    copied = timeline.resync_bytes(entries, load.minor, began_s)
    begun = [e for e in events if e.mark is Milestone.RESYNC_BEGIN and e.node == survivor]
    ended = [e for e in events if e.mark is Milestone.RESYNC_END and e.node == survivor]
    if copied is None or not begun or not ended:
        return None
    # An extent that was never written is not in the activity log, however large the log is.
    touched = {record.block // _AL_EXTENT_BLOCKS for record in records}
    al_bytes = collect.activity_log_bytes(load.bed, survivor, load.device)
    return Resync(
        copied_bytes=copied,
        written_bytes=ledger_latency.bytes_written(records, began_s, begun[0].at_s),
        activity_log_bytes=min(al_bytes, len(touched) * _AL_EXTENT_BLOCKS * BLOCK_BYTES),
        device_bytes=collect.device_bytes(load.bed, survivor, load.device),
        seconds=ended[-1].at_s - begun[0].at_s,
    )
