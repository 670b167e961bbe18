# SPDX-License-Identifier: GPL-2.0-or-later
"""An application that is kept quiet by a unit of systemd for as long as its replicas are copied.

A unit of its own, sanctl-point-hook@NAME.service: its control group has what the hook starts, so
that nothing of it delays the end of a hold, and systemd runs the hook after whatever dies.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

from sanctl.drivers import hook_files
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.point_hook import MAX_LIMIT_S, HookResult, HookRun
from sanctl.model.restore_point import PointOrder
from sanctl.plan.device.point_hook import (
    Held,
    check_time_left,
    check_was_quiet,
    code_without_hook,
    concerns,
    left_problem,
)
from sanctl.system import process_start, state_files
from sanctl.system.runner import Runner

_HELD = "point-hook-held"
#: A call of systemctl that waits for nothing.
_CALL_S = 5.0
#: How long the hook after is waited for, behind the flush: standbys wait a minute for the verdict.
AFTER_S = 40.0
#: The longest that each call in `Quiet.check` takes: the hook after of a point before, twice.
_LEFT_S = 2.0 * MAX_LIMIT_S + 30.0
#: How long `Quiet.check` takes where one hook of a point before has to be ended.
LONGEST_CHECK_S = 2 * _LEFT_S


def run_note(name: str) -> state_files.StateFile:
    """Return the note of the hook that is to run for a device."""
    return state_files.of_node(f"point-hook.{name}")


def held_note(name: str) -> state_files.StateFile:
    """Return the note of a hook that was begun, and whose second run has not succeeded yet."""
    return state_files.of_node(f"{_HELD}.{name}")


def outcome_note(name: str, phase: str) -> state_files.StateFile:
    """Return the note of why a hook failed: token, code and text."""
    return state_files.of_node(f"point-hook-failed.{name}.{phase}")


def holders_of(devices: Collection[str]) -> list[str]:
    """Return the devices in whose units hooks have not ended that may concern these devices."""
    return [
        holder
        for holder in state_files.node_suffixes(_HELD)
        if concerns(holder, run_note(holder).read(), devices)
    ]


def longest_begin_s(order: PointOrder) -> float:
    """Return the longest that `Quiet.begin` takes, in seconds: a hook that hangs, and its end."""
    return 3.0 * order.hook.limit_s + 30.0 if order.hook else 0.0


class Quiet:
    """An application that is kept quiet; a context manager, at whose end that ends, too.

    Without a hook in the order it does nothing. The order may be a group's: the hook is run once
    for all of its devices, by the process of the first.
    """

    def __init__(self, runner: Runner, name: str, order: PointOrder) -> None:
        """Take the device's name and the order for its restore point."""
        self._runner, self._name, self._order = runner, name, order
        self._devices = order.group or (name,)
        self._unit = _unit_of(name)
        self._is_begun = False
        self._before = ""
        #: Whether the application is quiet, as far as is known.
        self.is_quiet = False

    def check(self) -> None:
        """Check that the hook can begin, before anything else is done: no standby waits yet.

        Where the hook after of a restore point before has failed, of one of these devices alone or
        of a group with one, it is run once more. Until it has succeeded no hook begins: the
        application may be quiet still.

        Raises:
            CommandError: it cannot, and the order does not allow a point without it.
        """
        hook = self._order.hook
        if hook is None:
            return
        try:
            hook_files.path_of(hook.name)
            self._end_earlier()
        except CommandError as error:
            self._before = code_without_hook(hook, error)

    def _end_earlier(self) -> None:
        """Have the hook after run that a restore point before has left to be done.

        Raises:
            CommandError: it has failed, or systemd does not answer.
        """
        for holder in dict.fromkeys((*self._devices, *holders_of(self._devices))):
            unit = _unit_of(holder)
            try:
                # One that still runs is ended by its own notes.
                self._runner.run(["systemctl", "stop", unit], timeout_s=_LEFT_S)
            except CommandError as error:
                raise _no_unit(error) from error
            if not held_note(holder).exists():
                continue
            with contextlib.suppress(CommandError):
                # It begins nothing while there is that note, and fails; the hook after follows.
                self._runner.run(["systemctl", "start", unit], timeout_s=_LEFT_S)
        self._refuse_left()

    def _refuse_left(self) -> None:
        for holder in holders_of(self._devices):
            raise CommandError(left_problem(os.uname().nodename, run_note(holder).read()))

    def begin(self) -> None:
        """Run the hook before, and keep the application quiet; after `check`.

        Raises:
            CommandError: it failed, and the order does not allow a point without it. The hook
                after has run.
        """
        hook, token = self._order.hook, self._order.token
        if hook is None or self._before:
            return
        try:
            self._refuse_left()
        except CommandError as error:
            self._before = code_without_hook(hook, error)
            return
        for phase in ("before", "after"):
            outcome_note(self._name, phase).remove()
        run_note(self._name).write(str(HookRun(token, self._order.name, hook, self._order.group)))
        self._is_begun = True
        try:
            self._runner.run(
                ["systemctl", "start", self._unit], timeout_s=longest_begin_s(self._order)
            )
        except CommandError as error:
            self._before = code_without_hook(hook, self._why(error))
            return
        self.is_quiet = True

    def _why(self, error: CommandError) -> CommandError:
        failure = _failure(self._name, "before", self._order.token)
        problem = _no_unit(error).problems[0]
        code, text = failure or (problem.code, problem.text)
        if _failure(self._name, "after", self._order.token):
            text += "; it failed afterwards, too, and the application may still be quiet"
        return CommandError(Problem(code, text))

    def check_time_left(self) -> None:
        """Check right before the hold that there is time for it.

        Raises:
            CommandError: there is none, and the order does not allow a point without the hook.
        """
        if self.is_quiet:
            held = Held.parse(held_note(self._name).read())
            self._unless_allowed(lambda: check_time_left(held, self._order.token, time.monotonic()))

    def check_was_quiet(self) -> None:
        """Check after the copies were made that the application is quiet still.

        Raises:
            CommandError: it is not, and the order does not allow a point without the hook.
        """
        if self.is_quiet:
            held = Held.parse(held_note(self._name).read())
            ticks = process_start.ticks(held.pid) if held else ""
            self._unless_allowed(lambda: check_was_quiet(held, self._order.token, ticks))

    def _unless_allowed(self, check: Callable[[], None]) -> None:
        try:
            check()
        except CommandError as error:
            assert self._order.hook
            self.is_quiet = False
            self._before = code_without_hook(self._order.hook, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Without a wait: the copies are to be flushed meanwhile. Where that fails, the limit ends
        # it, and this process's unit stops that one, too.
        if self._is_begun:
            with contextlib.suppress(SanctlError):
                self._runner.run(["systemctl", "stop", "--no-block", self._unit], timeout_s=_CALL_S)

    def result(self) -> HookResult | None:
        """Wait for the hook after; return what became of the hook, None without one."""
        hook = self._order.hook
        if hook is None:
            return None
        after = ""
        if self._is_begun:
            try:
                self._runner.run(["systemctl", "stop", self._unit], timeout_s=AFTER_S)
            except CommandError:
                after = "SAN-HOOK-005"
        if held_note(self._name).exists():
            after = "SAN-HOOK-005"
        return HookResult(hook.name, self._before, after)


def _unit_of(name: str) -> str:
    return f"sanctl-point-hook@{name}.service"


def _no_unit(error: CommandError) -> CommandError:
    said = " ".join(error.problems[0].text.split())
    text = f"{os.uname().nodename}: systemd did not run the hook's unit: {said}"
    return CommandError(Problem("SAN-HOOK-007", text))


def _failure(name: str, phase: str, token: str) -> tuple[str, str] | None:
    seen, _, rest = outcome_note(name, phase).read().partition(" ")
    code, _, text = rest.partition(" ")
    return (code, text) if seen == token and text else None
