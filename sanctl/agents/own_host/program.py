# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of the units of a storage node that is a host itself (docs/adr/0086).

    own-host login          logs in to this cluster's targets, again and again, until it is ended
    own-host logout         logs out of this cluster's targets whose disks nobody has open, while
                            the node stops; otherwise it does nothing
    own-host logout-all     the same with all targets
    own-host await NAME     waits until a device's multipath map is there
    own-host await-all      waits until those are of all devices that let this node in, of which
                            discovery has noted a path

systemd runs what a unit has as ExecStop= also where it restarts the unit, or an operator stops it:
with an update on all nodes at about the same time. Sessions stay then.

Each may end at any point: nothing is noted, and the next run looks at what there is.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from sanctl.agents import cluster_toml
from sanctl.agents.release import is_replaced, own_release
from sanctl.drivers import initiator, node_stop
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.own_session import Record, Session
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.plan.device import stop_pace
from sanctl.plan.host.logins import RARELY, Attempts, by_target, due_logins, open_targets
from sanctl.system import journal, parallel_calls
from sanctl.system.clock import Clock, SystemClock
from sanctl.system.files import exists
from sanctl.system.runner import LocalRunner, Runner

#: Between two looks: while a path is missing, and when all are there.
_POLL_S, _IDLE_S = 3.0, 10.0
#: Between two looks for maps: three programs at most, of which one reads the CIB.
_AWAIT_POLL_S = 2.0
_PORT = 3260
#: Less than TimeoutStopSec of the units, 60 s: what was left is named before systemd ends this.
_LOGOUT_WITHIN_S = 50.0
#: Less than TimeoutStartSec of sanctl-logins.service.
_AWAIT_ALL_S = 60.0
#: Less than TimeoutStartSec of sanctl-map@.service. Pacemaker orders no promotion meanwhile; what a
#: map needs is a target, not one that serves.
_AWAIT_S = 40.0
_CIB_TIMEOUT_S = 5.0
_USAGE = "usage: own-host login | logout | logout-all | await NAME | await-all"


def main() -> int:
    """Do what the first argument says; return the exit status."""
    runner = LocalRunner()
    match sys.argv[1:]:
        case ["login"]:
            log_in_until_replaced(runner, SystemClock())
            return 0
        case ["logout"]:
            return log_out(runner, is_all=False)
        case ["logout-all"]:
            return log_out(runner, is_all=True)
        case ["await", name]:
            target = f"{cluster_toml.load_topology().iqn_prefix}.{name}"
            return await_maps(runner, SystemClock(), lambda: {target}, within_s=_AWAIT_S)
        case ["await-all"]:
            return await_maps(
                runner, SystemClock(), lambda: awaited_targets(runner), within_s=_AWAIT_ALL_S
            )
    sys.stderr.write(f"{_USAGE}\n")
    return 2


def log_in_until_replaced(runner: Runner, clock: Clock) -> None:
    """Log in to what there is a record of and no session, until another release is current.

    systemd starts that one then; what there is stays.
    """
    state, own = Logins(), own_release()
    said = ""
    while not is_replaced(own):
        try:
            log_in_once(runner, state, now_s=clock.monotonic_s())
            said = ""
        except (SanctlError, OSError) as error:
            # As often as it changes: iscsid may be away for long.
            if str(error) != said:
                said = str(error)
                _warn(f"the node's own sessions are not known: {error}", "login")
        clock.sleep(_POLL_S if state.tried else _IDLE_S)


@dataclass(slots=True)
class Logins:
    """Which paths this process has tried, and which had a session at its last look."""

    tried: dict[Record, Attempts] = field(default_factory=dict)
    had: frozenset[Record] = frozenset()


def log_in_once(runner: Runner, state: Logins, *, now_s: float) -> None:
    """Order the logins that are due, and note them.

    Where a session is gone somebody has logged out, as before a device is deleted. There a minute
    goes by, in which the record can be deleted.

    Raises:
        SanctlError, OSError: which there are is not known. A login that cannot be ordered is none.
    """
    topology = cluster_toml.load_topology()
    own = topology.node(os.uname().nodename)
    portals = {f"{address}:{_PORT}" for address in own.iscsi} if own is not None else set()
    sessions = initiator.sessions(runner)
    there, tried = frozenset(session.record for session in sessions), state.tried
    for record in there:
        tried.pop(record, None)
    for record in state.had - there:
        tried[record] = Attempts(RARELY, now_s)
    state.had = there
    for record in due_logins(
        initiator.records(runner),
        sessions,
        tried,
        prefix=f"{topology.iqn_prefix}.",
        own_portals=portals,
        now_s=now_s,
    ):
        times = tried[record].times if record in tried else 0
        tried[record] = Attempts(times + 1, now_s)
        # Refused as long as the target is not there: the next attempt is due soon.
        with contextlib.suppress(SanctlError):
            initiator.order_login(runner, record)


def log_out(runner: Runner, *, is_all: bool) -> int:
    """Log out of each target whose disk nobody has open; return 0 when no session is left.

    Nothing, and 0, while the node is not known to stop. Sessions that are left at its end keep it
    from nothing; logged out of on a node that runs, another SAN's disk might be SBD's.

    Other SANs' are logged out of with `is_all` alone, when all has stopped that may use them: who
    has a disk open without a map is not seen, as SBD its disk.

    Several at a time, and each in a process of its own: one that waits for a disk keeps no other.
    """
    if not node_stop.is_stopping(runner):
        return 0
    try:
        prefix = "" if is_all else f"{cluster_toml.load_topology().iqn_prefix}."
        targets = {
            target: sessions
            for target, sessions in by_target(initiator.sessions(runner)).items()
            if target.startswith(prefix)
        }
    except (SanctlError, OSError) as error:
        _say(f"it is not known which sessions this node has: {error}")
        return 1
    failed = False
    calls = {target: partial(end_target, runner, ended) for target, ended in targets.items()}
    for target, failure in parallel_calls.run_all(
        calls, within_s=_LOGOUT_WITHIN_S, may_begin=stop_pace.may_begin
    ):
        if failure:
            failed = True
            _say(f"the sessions with {target} stay: {failure}")
    return int(failed)


def end_target(runner: Runner, ended: tuple[Session, ...]) -> None:
    """Remove the map over a target's sessions, and log out of all of them.

    Raises:
        CommandError: somebody has it open; nothing was changed, or the map is gone and a session
            is left.
    """
    disks = [disk for session in ended for disk in initiator.disks(session)]
    maps = dict.fromkeys(name for disk in disks for name in initiator.maps_over(disk))
    for disk in disks:
        if not initiator.maps_over(disk) and initiator.is_claimed(disk):
            raise _in_use(f"/dev/{disk}")
    for name in maps:
        try:
            # With the maps of its partitions; refused, with no effect, where somebody has one open.
            initiator.remove_map(runner, name)
        except CommandError:
            if initiator.is_open(runner, name):
                raise _in_use(f"/dev/mapper/{name}") from None
            raise
    for session in ended:
        initiator.logout(runner, session)


def _in_use(path: str) -> CommandError:
    return CommandError(
        Problem(
            "SAN-NODE-013",
            f"{path} is open",
            "end the guest, unmount it, or deactivate what is on it",
        )
    )


def await_maps(
    runner: Runner, clock: Clock, wanted: Callable[[], Collection[str]], *, within_s: float
) -> int:
    """Wait until the multipath maps of targets are there; return 0 then, else 1 after the time."""
    end_s = clock.monotonic_s() + within_s
    while True:
        try:
            targets = wanted()
            # Asked for once a round, not for each of fifty devices.
            sessions = by_target(initiator.sessions(runner)) if targets else {}
            missing = [each for each in sorted(targets) if not has_map(sessions.get(each, ()))]
            why = f"there is no map over a session with {', '.join(missing)}"
        except (SanctlError, OSError) as error:
            missing, why = ["?"], str(error)
        if not missing:
            return 0
        if clock.monotonic_s() >= end_s:
            break
        clock.sleep(_AWAIT_POLL_S)
    _say(f"{why}: 'iscsiadm -m node' has to list its portals (discovery), 'multipath -ll' the map")
    return 1


def noted_targets(runner: Runner) -> set[str]:
    """Return this cluster's targets that discovery has noted.

    Raises:
        SanctlError: they are not known.
    """
    prefix = f"{cluster_toml.load_topology().iqn_prefix}."
    found = {record.target for record in initiator.records(runner)}
    return {target for target in found if target.startswith(prefix)}


def awaited_targets(runner: Runner) -> frozenset[str]:
    """Return those of the noted targets whose devices are there and let this node in.

    All that are noted where the CIB does not answer.

    Raises:
        SanctlError: they are not known.
    """
    noted = frozenset(noted_targets(runner))
    if not noted:
        return noted
    try:
        answer = runner.run(["cibadmin", "--query"], timeout_s=_CIB_TIMEOUT_S)
        devices = parse_cib(parse_document(answer.stdout)).devices
    except (SanctlError, OSError):
        return noted
    prefix = f"{cluster_toml.load_topology().iqn_prefix}."
    return noted & open_targets(devices, prefix=prefix, iqn=initiator.own_iqn())


def has_map(sessions: Collection[Session]) -> bool:
    """Whether the map over a target's sessions can be opened by its name."""
    return any(
        exists(f"/dev/mapper/{name}")
        for session in sessions
        for disk in initiator.disks(session)
        for name in initiator.maps_over(disk)
    )


def _say(text: str) -> None:
    """Print to the console, through the unit's standard output, and write to the journal."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"sanctl: {text}\n")
        sys.stdout.flush()
    _warn(text, "logout")


def _warn(text: str, step: str) -> None:
    journal.write(text, priority=journal.WARNING, action="own-host", step=step)
