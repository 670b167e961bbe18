"""DRBD's fence-peer and unfence-peer handlers.

DRBD 8.4 with `fencing resource-and-stonith` freezes a Primary's I/O when it loses its peer, and
calls fence-peer; what that returns decides whether I/O goes on. A Secondary that is to become
Primary without its peer asks the same. The question is always: is it certain that the peer will
not serve this device with the data it has?

The answer is a permanent node attribute of the peer, `sanctl-outdated-NAME`, which a location rule
of every device turns into "never promote there". Only a partition with quorum can set it, and a
promotion elsewhere reads the same CIB. Silence is not absence: while the peer is out of the
membership and not known to be fenced, this waits, and I/O stays frozen.

Exit codes as in drbd_nl.c (conn_try_outdate_peer): 4 the peer is outdated, 7 the peer was fenced;
anything DRBD does not know means "not certain".
"""

from __future__ import annotations

import os
import time
import xml.etree.ElementTree as ET

from sanctl.drivers import attributes, drbd
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.parse.corosync import parse_quorumtool
from sanctl.system import journal
from sanctl.system.runner import LocalRunner, Runner

_PEER_OUTDATED = 4
_PEER_FENCED = 7
_UNCERTAIN = 1
_DEADLINE_S = 90.0
_RUNNER = LocalRunner()


def fence_peer() -> int:
    """Make sure that the peer will not serve the device; return DRBD's code for how."""
    device, peer = os.environ.get("DRBD_RESOURCE", ""), os.environ.get("DRBD_PEER", "")
    if not device or not peer:
        journal.write("fence-peer: DRBD named no resource or peer", priority=journal.ERROR)
        return _UNCERTAIN
    begin = time.monotonic()
    last = "nothing asked yet"
    marked = False
    while time.monotonic() - begin < _DEADLINE_S:
        try:
            uuid = _uuid(_RUNNER, device)
            if not marked:
                attributes.remember(
                    _RUNNER, peer, f"sanctl-outdated-{device}", uuid, timeout_s=20.0
                )
                marked = True
            standing = peer_standing(_RUNNER, peer)
        except SanctlError as error:
            last = str(error)
            time.sleep(0.3)
            continue
        last = f"{peer} is {standing}"
        if standing in {"member", "fenced"}:
            journal.write(
                f"{device}: {peer} cannot be promoted any more ({standing}), I/O goes on",
                priority=journal.NOTICE,
                device=device,
                action="fence-peer",
                step=standing,
                duration_ms=round((time.monotonic() - begin) * 1000),
            )
            return _PEER_FENCED if standing == "fenced" else _PEER_OUTDATED
        time.sleep(0.2)
    journal.write(
        f"{device}: not certain that {peer} is gone, I/O stays frozen: {last}",
        priority=journal.ERROR,
        device=device,
        action="fence-peer",
        step="uncertain",
    )
    return _UNCERTAIN


def unfence_peer() -> int:
    """Let a replica be promoted again: it has just become the same as its source.

    Called on the node whose resync ended (8.4: after-resync-target).
    """
    device = os.environ.get("DRBD_RESOURCE", "")
    try:
        clear_own_mark(_RUNNER, device)
    except SanctlError as error:
        journal.write(
            f"{device}: still marked as outdated here: {error}; the monitor tries again",
            priority=journal.WARNING,
            device=device,
            action="unfence-peer",
        )
        return 1
    journal.write(
        f"{device}: resynchronised, may be promoted here again",
        priority=journal.NOTICE,
        device=device,
        action="unfence-peer",
        step="cleared",
    )
    return 0


def clear_own_mark(runner: Runner, device: str) -> None:
    """Take the mark "outdated" off this node's replica, which is in sync with its peer.

    The link may break, and the peer set the mark again, between the moment at which that was true
    and the moment at which the mark is removed: a replica that is not in contact any more
    afterwards therefore marks itself. Its peer clears nothing; the next resync does.

    Raises:
        SanctlError: the cluster or DRBD did not answer; the mark is there, or set again.
    """
    here = os.uname().nodename
    mark = f"sanctl-outdated-{device}"
    attributes.forget(runner, here, mark, timeout_s=30.0)
    try:
        state = drbd.observe(runner, device)
    except SanctlError:
        state = None
    if state is None or not state.is_in_sync:
        attributes.remember(runner, here, mark, _uuid(runner, device), timeout_s=30.0)
        raise CommandError(
            Problem("SAN-AGENT-008", f"{device}: the peer was lost while this replica was cleared")
        )


def peer_standing(runner: Runner, peer: str) -> str:
    """Return what the cluster knows of a node: `member`, `fenced` or `unknown`.

    Quorum and membership are asked of corosync, not of the CIB: when a partition forms, the CIB
    follows by up to seconds, and what it says meanwhile is yesterday's.

    Raises:
        SanctlError: one of the two did not answer.
    """
    membership = parse_quorumtool(
        runner.run(["corosync-quorumtool", "-s"], timeout_s=10.0, ok=range(3)).stdout
    )
    if not membership.is_quorate:
        return "unknown"
    if peer in membership.members:
        return "member"
    answer = runner.run(
        ["cibadmin", "--query", "--xpath", f"//node_state[@uname='{peer}']", "--no-children"],
        timeout_s=20.0,
    )
    return "fenced" if is_fenced(ET.fromstring(answer.stdout)) else "unknown"  # noqa: S314


def is_fenced(state: ET.Element) -> bool:
    """Judge a node that is not a member by its `node_state`.

    Pacemaker Explained, "Node status": a node that left cleanly or was fenced is expected to be
    down and has joined nothing; until then it counts as unclean. `in_ccm` and `crmd` are words up
    to 2.1.6, and times of joining with 0 for absent after that.
    """
    return (
        state.tag == "node_state"
        and state.get("in_ccm") in {"false", "0"}
        and state.get("crmd") in {"offline", "0"}
        and state.get("expected") == "down"
        and state.get("join") == "down"
    )


def _uuid(runner: Runner, device: str) -> str:
    return runner.run(
        ["crm_resource", "--resource", device, "--get-parameter", "uuid"], timeout_s=20.0
    ).stdout.strip()
