# SPDX-License-Identifier: GPL-2.0-or-later
"""Has a device's next monitor do at once what the CIB shows to be due, and that monitor cannot see.

Monitors of replicas in sync are short for minutes (docs/adr/0053): nothing that their client reads
changes by a score that the CIB has lost, or by a mark that stays where a connection was lost and
made again between two of them, without a resync. The pool agent reads the CIB every ten seconds for
all devices, and looks for both (rules: sanctl/plan/failover/cib_check.py). What is due is done by
the device's own monitor.
"""

from __future__ import annotations

from collections.abc import Mapping

from sanctl.agents import fingerprint
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.publish import attrd_cache, node_states
from sanctl.errors import SanctlError
from sanctl.plan.failover import cib_check as plan
from sanctl.system import journal
from sanctl.system.state_files import StateFile

_log = DeviceLog("publish", priority=journal.WARNING)


def have_done(attributes: Mapping[str, str], *, has_lost_all: bool) -> None:
    """Have the next monitors of devices publish lost scores again, and clear marks.

    An error is logged; the next call looks again.

    Args:
        attributes: what the CIB has for this node: promotion scores among its transient attributes,
            and marks of other nodes' replicas, by name or id.
        has_lost_all: the CIB has no transient attribute of this node; pacemaker-attrd writes them.
    """
    try:
        if not has_lost_all:
            for name in plan.lost_scores(_settled_scores(), attributes):
                _log(name, "the CIB has not got its promotion score: it is published again")
                _have_monitored(name, attrd_cache.of_score(name))
        for name in sorted(plan.marked_devices(attributes)):
            if plan.may_clear_mark(node_states.published(name)):
                _have_monitored(name, attrd_cache.of_device(name))
    except Exception as error:
        # No error of this one keeps the pool agent from all else that it does.
        text = str(error) if isinstance(error, (SanctlError, OSError)) else repr(error)
        _log("", f"what is due by the CIB is not known: {text}; the next monitor looks again")


def _settled_scores() -> dict[str, str]:
    pid = attrd_cache.attrd_pid()
    found = {}
    for name in attrd_cache.devices_with_score():
        cached = attrd_cache.of_score(name)
        if attrd_cache.must_be_in_cib(cached, pid, after_s=plan.WRITTEN_AFTER_S):
            found[name] = " ".join(attrd_cache.published_fields(cached)[1:])
    # A replica that was stopped meanwhile has none.
    return {name: score for name, score in found.items() if score}


def _have_monitored(name: str, cached: StateFile) -> None:
    # In this order: a monitor that runs meanwhile leaves no fingerprint by a record that is old.
    attrd_cache.have_published_again(cached)
    fingerprint.remove(name)
