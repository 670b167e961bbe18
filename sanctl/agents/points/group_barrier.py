# SPDX-License-Identifier: GPL-2.0-or-later
"""Has the processes that make restore points of a group's devices go on together, or not at all.

Each device has a process of its own, on the one node that serves all (`leader`), with a hold of its
own that ends in time whatever becomes of the others. Each says in a file how far it is:

    begun      * the process is there; waited for by all
    checked    * no earlier hook keeps an application quiet, or the order goes without
    prepared   nothing is held; waited for by all, so that the holds begin together
    quiet      * the hook before has run; waited for by the others
    settled    * what the hook had the host write is flushed; waited for by all, as `prepared`
    held       waited for by all before any copies: there is a moment at which all are held
    copied     * I/O goes on; waited for by the first, which then ends the quiet
    flushed    with the restore point; waited for by the first device's process, which adds all to
               the CIB in one change
    recorded   said by the first device's process alone; waited for by the others
    failed     with the code and the reason: nobody goes on, no restore point was or will be made
    unknown    the CIB may have the restore points: the pool agents find out

What has a star is said where the order has a hook. The first device's process runs it, once for
all (docs/adr/0074): `checked` and `quiet` are said by that one alone, and waited for by the others.

Each file names its process. One that has died is waited for no longer, one that hangs for some
time, and nobody once any has failed: while a process waits, its device's unit takes no other
order. Once `flushed` is said the first device's process may have added the point, so nobody removes
a copy then.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from sanctl.agents.points import hook_unit
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.restore_point import POINT_PREFIX, PointFailure, PointOrder, RestorePoint
from sanctl.plan.device.point_group import HEARD
from sanctl.system import process_start, state_files

_KIND = "point-group"
_PREPARED, _HELD, _FLUSHED, _RECORDED = "prepared", "held", "flushed", "recorded"
_BEGUN, _CHECKED, _QUIET, _SETTLED, _COPIED = "begun", "checked", "quiet", "settled", "copied"
_FAILED, _UNKNOWN = "failed", "unknown"
_ORDER = (_BEGUN, _CHECKED, _PREPARED, _QUIET, _SETTLED, _HELD, _COPIED, _FLUSHED, _RECORDED)
#: For those that copy more ahead (copied_ahead.py). A peer waits so much longer for the copy.
_PREPARED_S = 60.0
_FLUSHED_S, _RECORDED_S = 40.0, 80.0
#: A standby waits a minute for each of the next words.
_SETTLED_S, _COPIED_S = 20.0, 10.0
_POLL_S, _HELD_POLL_S = 0.05, 0.002
_LEFT_OVER_S = 3600.0


class GroupFailed(CommandError):
    """No restore point of the group has been recorded, and none will be."""


class GroupBarrier:
    """The group of one device's order; of an order without a group, nobody is waited for.

    Attributes:
        is_undone: set by the caller where `record` has failed, and has certainly added nothing.
    """

    def __init__(self, device: str, order: PointOrder) -> None:
        self._device, self._order = device, order
        self._others = tuple(each for each in order.group if each != device)
        self._first = order.group[0] if order.group else device
        self._has_hook = bool(self._others) and order.hook is not None
        self._has_flushed = self._is_recorded = False
        self.is_undone = False

    @property
    def own_order(self) -> PointOrder:
        """The order with the hook if this process runs it, else without."""
        is_first = self._device == self._first
        return self._order if is_first else self._order._replace(hook=None)

    def check_hook(self, check: Callable[[], None]) -> None:
        """Return when the first device's process has checked that the hook can begin.

        Args:
            check: does that; called if this is that process.

        Raises:
            GroupFailed: it has failed, or has said nothing in time.
            CommandError: as `check`.
        """
        if self._has_hook:
            self._say(_BEGUN)
            self._await(_BEGUN, self._others, within_s=_PREPARED_S, poll_s=_POLL_S)
        self._first_does(check, _CHECKED, within_s=hook_unit.LONGEST_CHECK_S)

    def begin_hook(self, begin: Callable[[], None]) -> None:
        """Return when the first device's process has run the hook before; else as `check_hook`."""
        within_s = hook_unit.longest_begin_s(self._order) + _PREPARED_S
        self._first_does(begin, _QUIET, within_s=within_s)

    def _first_does(self, action: Callable[[], None], phase: str, *, within_s: float) -> None:
        if self._device == self._first:
            action()
        if self._has_hook and self._device == self._first:
            self._say(phase)
        elif self._has_hook:
            self._await(phase, (self._first,), within_s=within_s, poll_s=_POLL_S)

    def await_settled(self) -> None:
        """Return when all replicas of all devices have flushed what hosts have written last.

        Raises:
            GroupFailed: another device's process has failed, or has said nothing in time.
        """
        if self._others:
            self._say(_SETTLED)
            self._await(_SETTLED, self._others, within_s=_SETTLED_S, poll_s=_POLL_S)

    def await_copied(self) -> None:
        """Say that this device is copied; where this process runs the hook, wait for all others.

        Raises:
            GroupFailed: another device's process has failed, or has said nothing in time.
        """
        if self._has_hook:
            self._say(_COPIED)
            if self._device == self._first:
                self._await(_COPIED, self._others, within_s=_COPIED_S, poll_s=_POLL_S)

    def await_prepared(self) -> None:
        """Return when nothing is left to do before the hold, for any of the devices.

        Raises:
            GroupFailed: another device's process has failed, or has said nothing in time.
        """
        if self._others:
            _remove_leftovers()
            self._say(_PREPARED)
            self._await(_PREPARED, self._others, within_s=_PREPARED_S, poll_s=_POLL_S)

    def await_held(self, *, within_s: float) -> None:
        """Return when the I/O of all devices is held; called in the hold.

        Raises:
            GroupFailed: another device's process has failed, or has said nothing in time.
        """
        if self._others:
            self._say(_HELD)
            self._await(_HELD, self._others, within_s=within_s, poll_s=_HELD_POLL_S)

    def record(
        self, point: RestorePoint, add: Callable[[tuple[RestorePoint, ...]], object]
    ) -> None:
        """Add this device's restore point to the CIB with those of the others, in one change.

        What became of the hook is the same for all: what the process says that has run it.

        Args:
            point: what this process has made, which outlives a crash of each node.
            add: makes the change, or raises.

        Raises:
            GroupFailed: another device's process has failed, or has said nothing in time.
            SanctlError: as `add`.
            CommandError: it is not known whether the first device's process has added the points.
        """
        if not self._others:
            add((point,))
            return
        self._has_flushed = True
        self._say(_FLUSHED, f"{point.id}={point.value}")
        if self._device != self._first:
            # That one waits for the hook after, too.
            within_s = _RECORDED_S + (hook_unit.AFTER_S if self._has_hook else 0.0)
            self._await(_RECORDED, (self._first,), within_s=within_s, poll_s=_POLL_S)
            self._is_recorded = True
            return
        said = self._await(_FLUSHED, self._others, within_s=_FLUSHED_S, poll_s=_POLL_S)
        points = [_parse_point(text)._replace(hook=point.hook) for text in said.values()]
        add((point, *points))
        self._is_recorded = True
        self._say(_RECORDED)

    def fail(self, error: SanctlError | OSError) -> None:
        """Tell the others that there will be no restore point, or that this is not known."""
        if not self._others or self._is_recorded:
            return
        failure = PointFailure.of(self._order.token, error)
        may_be_recorded = self._has_flushed and not self.is_undone
        with contextlib.suppress(OSError):
            self._say(_UNKNOWN if may_be_recorded else _FAILED, str(failure))

    def _say(self, phase: str, text: str = "") -> None:
        pid = os.getpid()
        owner = f"{pid}:{process_start.ticks(pid)}"
        _file(self._order.of_member(self._device).token).write(f"{phase} {owner} {text}")

    def _await(
        self, wanted: str, devices: tuple[str, ...], *, within_s: float, poll_s: float
    ) -> dict[str, str]:
        deadline = time.monotonic() + within_s
        while True:
            late, is_dead, said = "", False, {}
            for device in devices:
                token = self._order.of_member(device).token
                phase, text = _read(token)
                if _is_before(phase, wanted):
                    is_alive = _is_alive(token)
                    # Again: what a process has said last before its end counts.
                    phase, text = _read(token)
                    if _is_before(phase, wanted):
                        late, is_dead = (late, True) if is_dead else (device, not is_alive)
                if phase in {_FAILED, _UNKNOWN}:
                    raise _heard(device, phase, text)
                said[device] = text
            if not late:
                return said
            for device in set(self._others) - set(devices):
                # Also one that is not waited for: that it has failed is the end of the group, and
                # a process that hangs is waited for no longer.
                phase, text = _read(self._order.of_member(device).token)
                if phase == _FAILED:
                    raise _heard(device, phase, text)
            if is_dead or time.monotonic() >= deadline:
                # Who waits for nothing but `recorded` does not know what came of it.
                kind = CommandError if wanted == _RECORDED else GroupFailed
                raise kind(
                    Problem(
                        "SAN-SNAP-018",
                        f"{late}, of the same group, was not {wanted} "
                        + ("before a process ended" if is_dead else f"within {within_s:g} s"),
                        "'sanctl status' shows the device, 'journalctl SYSLOG_IDENTIFIER=sanctl' "
                        "on the node that serves it says more; try again",
                    )
                )
            time.sleep(poll_s)


def _heard(device: str, phase: str, text: str) -> CommandError:
    """Return the error that another device's process has told."""
    failure = PointFailure.parse(text)
    problem = failure.problem if failure else Problem("SAN-SNAP-018", f"it has failed: {text!r}")
    kind = GroupFailed if phase == _FAILED else CommandError
    return kind(Problem(problem.code, f"{device}{HEARD}{problem.text}", problem.hint))


def _file(token: str) -> state_files.StateFile:
    return state_files.of_node(f"{_KIND}.{token}")


def _is_before(phase: str, wanted: str) -> bool:
    return phase not in _ORDER or _ORDER.index(phase) < _ORDER.index(wanted)


def _read(token: str) -> tuple[str, str]:
    """Return what a device's process has said last: the phase, and the text."""
    phase, _, rest = _file(token).read().partition(" ")
    return phase, rest.partition(" ")[2]


def _is_alive(token: str) -> bool:
    """Whether the process that has said something runs, or none has said anything yet."""
    owner = _file(token).read().partition(" ")[2].partition(" ")[0]
    pid, _, started = owner.partition(":")
    return not owner or (pid.isdecimal() and process_start.ticks(int(pid)) == started)


def _remove_leftovers() -> None:
    """Remove what groups of long ago have said: nobody knows who has read it."""
    for token in state_files.node_suffixes(_KIND):
        file = _file(token)
        if (file.age_s() or 0.0) > _LEFT_OVER_S:
            file.remove()


def _parse_point(text: str) -> RestorePoint:
    """Read what `record` wrote.

    Raises:
        GroupFailed: a process of another release has written it.
    """
    identifier, _, value = text.partition("=")
    point = RestorePoint.parse(identifier, value)
    if point is None or not identifier.startswith(POINT_PREFIX):
        raise GroupFailed(Problem("SAN-SNAP-018", f"no restore point: {text!r}"))
    return point
