# SPDX-License-Identifier: GPL-2.0-or-later
"""Demotes a replica that Pacemaker does not know to be Promoted, where it promotes another one.

Pacemaker records a reload that succeeded as a start (pcmk__create_history_xml, 2.1.5 to 3.0.2), so
after a change of parameters only the recurring monitor for the role Promoted says that the replica
is. A planned move cancels that monitor before it demotes the replica. A transition that is aborted
in between, as by any node attribute that changes, is followed by one that takes the replica for
Unpromoted (docs/adr/0087): it promotes the other replica at once, and begins the monitor for the
role Unpromoted here. DRBD refuses the second Primary; so both actions failed, and both replicas
were stopped and started while nobody served.

That monitor makes up for the demotion: where the cluster is promoting a replica on a node that DRBD
here is in contact with, which waits for it (set_role.promote), the replica here is demoted, in the
order of any demotion. In all other cases the monitor reports the role that it finds, as ever: of a
device that is not managed, for one, Pacemaker runs monitors and promotes nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from sanctl.agents import ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica.parts import Device
from sanctl.drivers import cib, drbdsetup, gate
from sanctl.errors import SanctlError
from sanctl.system import journal
from sanctl.system.runner import Runner

#: The two actions begin together, and the promotion's record comes from the other node. Of many
#: devices that move the promotions wait for their turn there (node-action-limit).
_RECORD_WITHIN_S = 25.0
#: How long until the cluster is asked again, at first and at most: of many devices each one asks.
_POLL_S, _LONGEST_POLL_S = 0.5, 3.0
_QUERY_TIMEOUT_S = 8.0
#: `op-status` of an action that has begun and not ended (PCMK_EXEC_PENDING).
_PENDING = "-1"
_log = DeviceLog("monitor", priority=journal.WARNING, about="monitor")


def demote_for_promotion(runner: Runner, device: Device, demote: Callable[[], None]) -> None:
    """Demote the replica here if the cluster takes it for a standby and promotes another one.

    Args:
        runner: runs cibadmin and drbdsetup.
        device: the device that is monitored.
        demote: demotes the replica; its errors are errors of the monitor.
    """
    if not ocf.is_for_standby() or not _leads_onto_drbd(device.name):
        return
    node = _awaited_by(runner, device)
    if not node:
        return
    _log(
        device.name,
        "the cluster takes this replica, which serves, for a standby, and promotes the one on "
        f"{node}: this one is demoted",
        step="forgotten-role",
    )
    # A monitor's priority is less than that of other actions (resource-agents/client).
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    demote()


def _leads_onto_drbd(name: str) -> bool:
    try:
        return gate.gate_table(name).startswith("drbd")
    except (SanctlError, OSError):
        return False  # The monitor says why.


def _awaited_by(runner: Runner, device: Device) -> str:
    """Return the node whose promotion waits for this replica's demotion; empty: there is none."""
    until_s = time.monotonic() + min(_RECORD_WITHIN_S, ocf.remaining_s(90.0) / 3)
    pause_s = _POLL_S
    while True:
        # Where the cluster or DRBD gives no answer, it is asked again.
        with contextlib.suppress(SanctlError, OSError):
            nodes = _promoting(runner, device)
            state = drbdsetup.observe(runner, device.name) if nodes else None
            if state is not None and not state.is_primary:
                return ""
            for node in nodes:
                if state is not None and state.with_only_peer(node).is_connected:
                    return node
        if time.monotonic() >= until_s:
            return ""
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _LONGEST_POLL_S)


def _promoting(runner: Runner, device: Device) -> list[str]:
    """Return the other nodes on which a promotion of the device has begun and not ended."""
    found = cib.query(
        runner, f"//lrm_rsc_op[@id='{device.name}_last_0']", timeout_s=_QUERY_TIMEOUT_S
    )
    if found is None:
        return []
    return [
        each.get("on_node", "")
        for each in found.iter("lrm_rsc_op")
        if each.get("operation") == "promote" and each.get("op-status") == _PENDING
    ]
