# SPDX-License-Identifier: GPL-2.0-or-later
"""What is said of an order to restore a device: to the log, and to people by an attribute."""

from __future__ import annotations

import contextlib
import os

from sanctl.agents.device_log import DeviceLog
from sanctl.drivers import node_attributes
from sanctl.errors import Problem, SanctlError
from sanctl.model.device_restore import REPORT_PREFIX, RestoreOrder, RestoreReport
from sanctl.system.runner import LocalRunner

_RUNNER = LocalRunner()
log = DeviceLog("restore")


def problem_of(error: SanctlError | OSError, order: RestoreOrder) -> Problem:
    """Return why an order is not carried out."""
    if isinstance(error, SanctlError):
        return error.problems[0]
    return Problem("SAN-REST-008", f"{os.uname().nodename} cannot copy {order.source}: {error}")


def fail(name: str, order: RestoreOrder, problem: Problem) -> None:
    """Log and publish why an order is not carried out."""
    log(name, f"restore from {order.source}: {problem.code}: {problem.text}")
    publish(name, RestoreReport(order.token, problem.code, problem.text))


def publish(name: str, report: RestoreReport) -> None:
    """Publish how far it is. Only for people: an error of it is nothing."""
    with contextlib.suppress(SanctlError):
        node_attributes.publish(_RUNNER, f"{REPORT_PREFIX}{name}", str(report))


def end(name: str) -> None:
    """Publish nothing any more: the order has ended."""
    with contextlib.suppress(SanctlError):
        node_attributes.delete(_RUNNER, f"{REPORT_PREFIX}{name}")
