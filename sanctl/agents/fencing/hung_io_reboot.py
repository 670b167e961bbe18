# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures unanswered host requests here, asks plan.failover.hung_io_reboot, reboots this node.

The rules are in sanctl/plan/failover/hung_io_reboot.py.

DRBD's debugfs says of each request how long the request has waited, and for what. Without debugfs,
DRBD 8.4 counts the unanswered requests. If the count is above zero at two monitors and no request
has been answered between them, the requests of the first monitor still wait.

While requests hang and the node is not rebooted, a note says why, and is published with the
replica's state. It lies below /run, so it ends with the boot; a monitor that finds nothing removes
it, and so does a stop of the replica.
"""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.agents.replica import lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdsetup, loop, self_fence
from sanctl.errors import SanctlError
from sanctl.model.drbd import OldRequest, PeerState, ResourceState
from sanctl.model.hung_io import NOTE_KIND, HungCause, HungIo, hung_io, hung_word, parse_hung
from sanctl.plan.failover.hung_io_reboot import (
    EXPLAINED_FOR_S,
    SILENT_AFTER_S,
    STUCK_AFTER_S,
    HungIoAction,
    OtherDevice,
    Verdict,
    choose_action,
    explains_silence,
    spare_others,
)
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

_SYNC_TIMEOUT_S = 10.0
_RECHECK_DELAY_S = 3.0
#: So long nothing is answered where requests count as stuck whose age is not known.
_WATCHED_S = 2.0
_DATA = ".data"
#: The state line of a minor that has neither a disk nor a connection (drbd_proc.c, drbd_seq_show).
_UNCONFIGURED = "cs:Unconfigured"


def check(runner: Runner, device: Device, state: ResourceState, *, has_answer: bool = True) -> None:
    """Check the oldest requests of a device that is served here; reboot the node if they hang.

    The peer takes over if it can. Where no other node can serve the device, or this node alone
    serves others, this logs and notes that alone.

    Without `has_answer` drbdsetup has given none: the kernel's files are read in its place.
    """
    if not state.is_primary:
        _note(device.name).remove()
        # Since when nothing is answered says nothing once the replica is promoted again.
        _progress_note(device.name).remove()
        return
    verdict = _look(runner, device, state, has_answer=has_answer)
    if verdict.action is HungIoAction.END:
        # When a freeze ends, DRBD sends the held requests a moment after it reports the end.
        time.sleep(_RECHECK_DELAY_S)
        verdict = _recheck(runner, device, has_answer=has_answer)
    if verdict.cause is None:
        _note(device.name).remove()
    elif verdict.action is HungIoAction.WAIT:
        hung = _write_note(device.name, verdict.cause, verdict)
        journal.write(
            f"{device.name}: {_reason(verdict)}; {_why_not(hung)}",
            priority=journal.ERROR,
            device=device.name,
            action="hung-io",
        )
    else:
        # A peer in sync has all of it. Without one this replica's file is the only place.
        if has_answer or not verdict.can_be_served:
            _sync_pool(runner, device)
        self_fence.reboot(runner, f"{device.name}: {_reason(verdict)}", device=device.name)


def check_unasked(runner: Runner, device: Device) -> bool:
    """Do as `check` where drbdsetup gave no answer; with DRBD 9 nothing is seen without it.

    Returns:
        Whether requests that hang, of this device or another one, explain that, and end the node.

    Raises:
        OSError: the kernel's files cannot be read.
    """
    own = _state_by_kernel(device.name, device.minor)
    if own is None:
        return False
    check(runner, device, own, has_answer=False)
    if not _is_new_silence(device.name):
        return False
    states = (own, *_states_by_kernel(device).values())
    answered = {each.name: _completed(each) for each in states}
    time.sleep(_WATCHED_S)
    return any(
        answered[each.name] == _completed(each) and explains_silence(_stuck_requests(each), each)
        for each in states
    )


def forget_silence(device: Device) -> None:
    """Remove the note of DRBD's silence, once drbdsetup has answered about a device."""
    _silence_note(device.name).remove()


def _is_new_silence(name: str) -> bool:
    """Whether drbdsetup has given no answer about a device for a while only; no, if not known."""
    note, now_s = _silence_note(name), time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        since = note.read()
        if not since:
            note.write(f"{now_s}")
            return True
        return 0.0 <= now_s - float(since) < EXPLAINED_FOR_S
    except (OSError, ValueError):
        return False


def _completed(state: ResourceState) -> int:
    return -1 if state.minor is None else drbd_kernel.completed_requests(state.minor)


def _stuck_requests(state: ResourceState) -> tuple[OldRequest, ...]:
    """Return a device's oldest requests, none of which has been answered for a while."""
    requests = drbd_kernel.oldest_requests(state.name)
    if requests or state.minor is None:
        return requests
    answered, _, since = _progress_note(state.name).read().partition(" ")
    age_s = 0.0
    if answered == str(_completed(state)):
        with contextlib.suppress(ValueError):
            age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - float(since)
    return _counted_request(state.minor, max(STUCK_AFTER_S, age_s))


def _recheck(runner: Runner, device: Device, *, has_answer: bool) -> Verdict:
    try:
        if has_answer:
            state = drbdsetup.observe(runner, device.name)
        else:
            state = _state_by_kernel(device.name, device.minor)
    except (SanctlError, OSError):
        state = None
    if state is None:
        return Verdict(HungIoAction.FINE)
    return _look(runner, device, state, has_answer=has_answer)


def _look(runner: Runner, device: Device, state: ResourceState, *, has_answer: bool) -> Verdict:
    verdict = _choose_action(device, state)
    if verdict.action is HungIoAction.END:
        # Only now: it takes a program and several files for each device here.
        verdict = spare_others(verdict, _others(runner, device, has_answer=has_answer))
    return verdict


def _choose_action(device: Device, state: ResourceState) -> Verdict:
    unanswered_s = _unanswered_s(device, is_frozen=state.suspended != "no")
    requests = drbd_kernel.oldest_requests(device.name)
    if not requests:
        requests = _counted_request(device.minor, unanswered_s)
    return choose_action(requests, state, is_silent=unanswered_s > 0)


def _counted_request(minor: int, age_s: float) -> tuple[OldRequest, ...]:
    """Return the requests of a device as one of that age, by what DRBD 8.4 counts; or none."""
    counted = drbd_kernel.pending_requests(minor)
    if counted is None or not counted.hosts:
        return ()
    answered = frozenset({"ok"})
    return (
        OldRequest(
            age_s=age_s,
            is_suspended=not counted.disk and not counted.net,
            local=frozenset({"pending"}) if counted.disk else answered,
            net=frozenset({"pending"}) if counted.net else answered,
        ),
    )


def _reason(verdict: Verdict) -> str:
    if verdict.cause is HungCause.DISK:
        return f"the disk has not answered a request for {verdict.age_s:.0f} s"
    return f"DRBD has held a request for {verdict.age_s:.0f} s that waits for nothing any more"


def _why_not(hung: HungIo) -> str:
    if hung.needed_by == ():
        return "no other node can serve"
    if hung.needed_by is None:
        return (
            "the node is not rebooted for it, as it could not be seen whether other devices are"
            " served here alone; the next monitor looks again"
        )
    return (
        f"the node is not rebooted for it, as it alone serves {hung.who}; it is once another node "
        f"can serve those ('sanctl status' says what to do)"
    )


def _write_note(name: str, cause: HungCause, verdict: Verdict) -> HungIo:
    """Note what hangs, since when, and for whom the node goes on; return that."""
    since_s = int(time.time() - verdict.age_s)
    before = parse_hung(_note(name).read())
    if before is not None and before.cause is cause:
        since_s = min(before.since_s, since_s)
    hung = hung_io(cause, since_s, verdict.needed_by)
    # Without room for it the journal alone says so.
    with contextlib.suppress(OSError):
        if hung != before:
            _note(name).write(hung_word(hung))
    return hung


def _others(runner: Runner, device: Device, *, has_answer: bool) -> tuple[OtherDevice, ...] | None:
    """Return the other devices of this node; None where neither DRBD nor the kernel says all of it.

    A `drbdsetup` that has no answer about all devices may have none for as long as one of them
    hangs; then the kernel's own files are read.
    """
    try:
        states = drbdsetup.observe_all(runner) if has_answer else {}
    except (SanctlError, OSError):
        states = {}
    try:
        # Half an answer is none: one that lacks this device, or the volume of a Primary.
        if device.name not in states or any(
            state.role != "Secondary" and state.minor is None for state in states.values()
        ):
            states = _states_by_kernel(device)
        folders = _data_folders()
    except (SanctlError, OSError):
        return None
    here = folders.get(device.name)
    return tuple(
        OtherDevice(
            state=state,
            has_one_replica=len(resource_file.replica_nodes(name)) == 1,
            is_silent=_is_silent(name, state.minor),
            shares_disk=here is not None and folders.get(name) == here,
        )
        for name, state in states.items()
        if name != device.name
    )


def _states_by_kernel(device: Device) -> dict[str, ResourceState]:
    """Return the states of the other devices without a program, as far as the rule needs them.

    With DRBD 9, which has no /proc/drbd, only whether there are others at all.

    Raises:
        OSError: not all is known of each.
    """
    minors, found = drbd_kernel.minors(), dict[str, ResourceState]()
    if device.minor not in minors:
        raise OSError("the kernel does not show the device itself")
    names = resource_file.names_by_minor() if len(minors) > 1 else {}
    for minor in sorted(minors - {device.minor}):
        if drbd_kernel.state_line(minor) == _UNCONFIGURED:
            continue
        name = names.get(minor)
        seen = _state_by_kernel(name, minor) if name is not None else None
        if seen is None:
            raise OSError(f"what minor {minor} is, or its state, is not known")
        found[seen.name] = seen
    return found


def _state_by_kernel(name: str, minor: int) -> ResourceState | None:
    """Return a device's state by /proc/drbd, as far as the rule needs it; None with DRBD 9."""
    seen = drbd_kernel.proc_state(minor)
    if seen is None:
        return None
    # Not connected, or while a resync or a verify runs, the peer is not in sync for the rule.
    peer = PeerState("peer", "Connected", seen.peer_role, "Established", seen.peer_disk, None)
    return ResourceState(
        name,
        seen.role,
        "fencing" if seen.is_suspended else "no",
        seen.disk,
        None,
        (peer,) if seen.connection == "Connected" else (),
        minor,
    )


def _data_folders() -> dict[str, str]:
    """Return the folder of each device's attached data file, which is that of its pool."""
    files = (path for path in loop.backing_files() if path.endswith(_DATA))
    return {os.path.basename(path).partition(".")[0]: os.path.dirname(path) for path in files}


def _is_silent(name: str, minor: int | None) -> bool:
    """Whether requests of another device wait and none is answered, as its own monitor saw it."""
    if minor is None:
        return False
    counted = drbd_kernel.pending_requests(minor)
    waits = drbd_kernel.oldest_requests(name) if counted is None else counted.hosts
    answered_before, _, since = _progress_note(name).read().partition(" ")
    if not waits or answered_before != str(drbd_kernel.completed_requests(minor)):
        return False
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - float(since) >= SILENT_AFTER_S
    except ValueError:
        return False


def _unanswered_s(device: Device, *, is_frozen: bool) -> float:
    """Return for how long requests have waited while none was answered, as monitors have seen it.

    Time during which I/O was frozen does not count.
    """
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    answered = drbd_kernel.completed_requests(device.minor)
    counted = drbd_kernel.pending_requests(device.minor)
    is_idle = counted is not None and not counted.hosts
    answered_before, _, since = _progress_note(device.name).read().partition(" ")
    if answered_before == str(answered) and since and not is_idle and not is_frozen:
        # One of another release may be of another form: counted from now on.
        with contextlib.suppress(ValueError):
            return now - float(since)
    with contextlib.suppress(OSError):
        _progress_note(device.name).write(f"{answered} {now}")
    return 0.0


def _sync_pool(runner: Runner, device: Device) -> None:
    """Sync the pool's filesystem to its disk before the reboot; go on if that hangs."""
    path = lost_writes.data_file(device.name)
    if path is not None:
        with contextlib.suppress(SanctlError, OSError):
            runner.run(["sync", "--file-system", path], timeout_s=_SYNC_TIMEOUT_S)


def _progress_note(name: str) -> state_files.StateFile:
    """The note: how many requests were answered, since when no more (seconds since the boot).

    resource-agents/client writes it, too, where no request is under way at a short monitor.
    """
    return state_files.of_device(name, "io-progress")


def _note(name: str) -> state_files.StateFile:
    return state_files.of_device(name, NOTE_KIND)


def _silence_note(name: str) -> state_files.StateFile:
    """The note: since when drbdsetup gives no answer about a device (seconds since the boot)."""
    return state_files.of_node(f"drbd-silent.{name}")
