# SPDX-License-Identifier: GPL-2.0-or-later
"""The step after which an order to restore a device cannot be given up, and whether it stands."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from sanctl.agents import ocf
from sanctl.agents.restore import closure, noted_hold, order_report, own_cib
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.device_restore import COPYING, RestoreOrder
from sanctl.ops.noted_state import await_noted
from sanctl.ops.session import Session
from sanctl.plan.device import restore_changes
from sanctl.system.runner import LocalRunner

#: The next attempt to read from another server comes so much later: the reason may be that one's.
AGAIN_S = 30.0
#: How long Pacemaker may take to write the CIB to this node's disk; else nothing is written.
_ON_DISK_S = 5.0
_RUNNER = LocalRunner()


class Begin:
    """The step after which an order cannot be given up, as it may have come to that."""

    def __init__(self, session: Session, name: str, order: RestoreOrder) -> None:
        self._session, self._name, self.order = session, name, order
        self._was_tried = False
        # One that has begun does not say any more what the device was held as. One that is to hold
        # is noted beside the data as well: an older CIB may not have it as one that has begun.
        self._may_be_claimed = order.is_of_holds or order.state == COPYING

    def __call__(self) -> RestoreOrder:
        """Note that the device may hold parts of two states from here on; once.

        Where the CIB has said that the device is a copy, this node's disk has that it is none any
        more when this returns.

        Returns:
            The order as noted.

        Raises:
            CommandError: the CIB did not change, or is not on this node's disk: nothing is to be
                written.
        """
        order = self.order
        if order.state != COPYING:
            self._was_tried = True
            ocf.crash_point("restore-ready")
            # What nodes have noted is asked for once more: one may be back since, with a newer one.
            # One that is silent for a moment is waited for: else all is read again, for hours.
            await_noted(self._session, self._name)
            self._session.change(
                lambda seen: restore_changes.plan_begun(seen, self._name, order), can_wait=False
            )
            self.order = order.in_state(COPYING)
        if self._may_be_claimed:
            # The node's own CIB has the order then, so its version is not one of before.
            _check_stands(self._name, self.order)
            if not own_cib.is_on_disk(_RUNNER, wait_s=_ON_DISK_S):
                raise CommandError(_not_on_disk_problem(self._name))
            # Where another node goes on with an older CIB, and this one follows that.
            noted_hold.keep(self._name, str(self.order))
            self._may_be_claimed = False
        return self.order

    @contextlib.contextmanager
    def gives_up(self) -> Iterator[None]:
        """Have an error give the order up, if it comes before this step was tried.

        Raises:
            SanctlError: this step failed, as where others change the CIB all the time, or it is not
                known whether it did; or the order was not given up. The next monitor goes on.
        """
        try:
            yield
        except (SanctlError, OSError) as error:
            if self._was_tried and self.order.state != COPYING:
                raise
            order_report.fail(self._name, self.order, order_report.problem_of(error, self.order))
            if not self._was_tried and not give_up(self._session, self._name, self.order):
                time.sleep(AGAIN_S)


def give_up(session: Session, name: str, order: RestoreOrder) -> bool:
    """Let hosts in again, as nothing was written; unless what nodes have noted says otherwise.

    Returns:
        False: the order stays, and hosts stay out; the next monitor tries again.

    Raises:
        CommandError: the order was replaced, or the copy has begun: it is not given up any more.
            Or it is not known what nodes have noted.
    """
    change = session.change(
        lambda seen: restore_changes.plan_given_up(seen, name, order), can_wait=False
    )
    return bool(change)


def check_order(name: str, order: RestoreOrder) -> None:
    """Check that the order still stands, and that no host is let in.

    Raises:
        CommandError: it does not, or that is not known.
    """
    _check_stands(name, order)
    require_closed(name)


def _check_stands(name: str, order: RestoreOrder) -> None:
    if closure.read_order(_RUNNER, name) != str(order):
        raise CommandError(Problem("SAN-REST-006", f"the order to restore {name} was replaced"))


def require_closed(name: str) -> None:
    """Raise CommandError if a host is let in to the device."""
    if not closure.is_closed(name):
        raise CommandError(Problem("SAN-REST-008", f"{name}: the access list is not empty"))


def _not_on_disk_problem(name: str) -> Problem:
    here = os.uname().nodename
    return Problem(
        "SAN-REST-008",
        f"the CIB that says {name} is being overwritten is not on the disk of {here} after "
        f"{_ON_DISK_S:.0f} s, so nothing is written",
        "'sanctl doctor' shows what is wrong with that disk; the next monitor tries again",
    )
