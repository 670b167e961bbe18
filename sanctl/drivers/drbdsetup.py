# SPDX-License-Identifier: GPL-2.0-or-later
"""State and role of a resource in the kernel, resync, verify, down: drbdsetup(8).

drbdsetup talks to the kernel alone. So the failover path (`primary`, `secondary`, `observe`) uses
nothing else: commands that need the resource file are in sanctl/drivers/drbdadm.py, and what the
kernel says without a process is read in sanctl/drivers/drbd_kernel.py.
"""

from __future__ import annotations

import time

from sanctl.drivers import drbd_kernel
from sanctl.errors import CommandError, SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.parse.drbd import parse_events2
from sanctl.system.runner import Runner
from sanctl.system.runner import is_installed as is_program_installed

_TIMEOUT_S = 20.0
_POLL_S = 0.25
_HANDSHAKE_S = 10.0
# Codes of drbd_state.h (enum drbd_state_rv), in the words of drbdsetup.
_TRANSIENT = "(-18)"
#: SS_PRIMARY_NOP and SS_NO_QUORUM (drbd.h): the second one of three and more replicas.
_REFUSED_FOR_PEERS = ("(-7)", "(-25)")
#: drbdsetup's exit status for a resource that the kernel does not have (drbdsetup(8)).
_NO_SUCH_RESOURCE = 10


def is_installed() -> bool:
    """Whether the node has drbdsetup."""
    return is_program_installed("drbdsetup")


def observe(runner: Runner, name: str) -> ResourceState | None:
    """Return the state of a resource on this node, or None when it is not up.

    Raises:
        CommandError: DRBD did not answer; nothing may be concluded from that.
    """
    if not drbd_kernel.is_loaded():
        return None
    done = runner.run(
        ["drbdsetup", "events2", "--now", "--statistics", name],
        timeout_s=_TIMEOUT_S,
        ok=(0, _NO_SUCH_RESOURCE),
    )
    return parse_events2(done.stdout).get(name)


def is_standalone(state: ResourceState) -> bool:
    """Whether DRBD has given a connection up and waits for a new `connect`."""
    # DRBD 8.4 forgets a connection that it has given up.
    return not state.peers or any(peer.connection == "StandAlone" for peer in state.peers)


def observe_all(runner: Runner, *, timeout_s: float = _TIMEOUT_S) -> dict[str, ResourceState]:
    """Return the state of every resource on this node, by name.

    Raises:
        CommandError: DRBD did not answer.
    """
    if not drbd_kernel.is_loaded():
        return {}
    done = runner.run(["drbdsetup", "events2", "--now", "--statistics"], timeout_s=timeout_s)
    return parse_events2(done.stdout)


def generation_identifiers(runner: Runner, *subject: str, timeout_s: float) -> str | None:
    """Return what `drbdsetup get-gi` prints, None where it refuses (drbdsetup(8)).

    `subject` is the minor with 8.4; resource, peer's node id and volume with 9.
    """
    done = runner.run(["drbdsetup", "get-gi", *subject], timeout_s=timeout_s, ok=range(256))
    return done.stdout if done.status == 0 else None


def set_resync_paused(runner: Runner, minor: int, *, is_paused: bool) -> None:
    """Pause the resync of a device from this node, with DRBD 8.4, or resume it; twice is fine."""
    runner.run(
        ["drbdsetup", "pause-sync" if is_paused else "resume-sync", str(minor)],
        timeout_s=_TIMEOUT_S,
        ok=range(256),
    )


def set_resync_with_paused(runner: Runner, name: str, peer: int, *, is_paused: bool) -> None:
    """Pause the resync with one peer from this node, with DRBD 9, or resume it; twice is fine.

    Also while no resync runs with that peer: one that begins then begins paused.

    `peer` is the peer's node id.
    """
    word = "pause-sync" if is_paused else "resume-sync"
    runner.run(["drbdsetup", word, name, str(peer), "0"], timeout_s=_TIMEOUT_S, ok=range(256))


def invalidate(runner: Runner, minor: int) -> None:
    """Mark all of this node's replica as out of sync. Only for one that is no replica any more.

    Raises:
        CommandError: DRBD refused: a resync runs, or there is no disk.
    """
    runner.run(["drbdsetup", "invalidate", str(minor)], timeout_s=_TIMEOUT_S)


def start_verify(runner: Runner, minor: int) -> None:
    """Begin to compare the replicas, from their first block on.

    Raises:
        CommandError: refused: not connected, or a resync runs.
    """
    runner.run(["drbdsetup", "verify", str(minor), "--start=0s"], timeout_s=_TIMEOUT_S)


def start_verify_with(runner: Runner, name: str, peer: int) -> None:
    """Begin to compare with one peer, from the first block on: DRBD 9 verifies peer by peer.

    Raises:
        CommandError: refused: not connected, or a resync runs.
    """
    # Without a start it goes on where the last one ended.
    runner.run(["drbdsetup", "verify", name, str(peer), "0", "--start=0"], timeout_s=_TIMEOUT_S)


def resync_differences(runner: Runner, name: str, peer: int) -> None:
    """Resend to a peer the blocks that either bitmap names, and no others: DRBD 9.

    These are what a verify has just found to differ, or what has been left since a disk was lost.

    Raises:
        CommandError: refused: not connected, or a resync runs.
    """
    runner.run(
        ["drbdsetup", "invalidate-remote", name, str(peer), "0", "--reset-bitmap=no"],
        timeout_s=_TIMEOUT_S,
    )


def resync_from(runner: Runner, minor: int, peer: int) -> None:
    """Have a peer send the blocks that either bitmap names, and no others: DRBD 9.

    Raises:
        CommandError: refused: not connected, or a resync runs.
    """
    runner.run(
        [
            "drbdsetup", "invalidate", str(minor), f"--sync-from-peer-node-id={peer}",
            "--reset-bitmap=no",
        ],
        timeout_s=_TIMEOUT_S,
    )  # fmt: skip


def set_disk_flushes(runner: Runner, minor: int, *, on: bool) -> None:
    """Have DRBD flush the local disk between writes that depend on each other, or only drain it.

    Works on a disk that is attached, at any moment (drbdsetup-8.4(8), disk-flushes).

    Raises:
        CommandError: refused, or no disk is attached.
    """
    word = "yes" if on else "no"
    runner.run(
        ["drbdsetup", "disk-options", str(minor), f"--disk-flushes={word}"], timeout_s=_TIMEOUT_S
    )


def set_activity_log(runner: Runner, minor: int, *, extents: int) -> None:
    """Change how many extents the activity log of an attached disk has; the same number is fine.

    Raises:
        CommandError: refused, as while hosts write; or no disk is attached.
    """
    runner.run(
        ["drbdsetup", "disk-options", str(minor), f"--al-extents={extents}"], timeout_s=_TIMEOUT_S
    )


def require_two(runner: Runner, name: str) -> None:
    """Have DRBD 9 freeze a Primary's I/O while fewer than two replicas are connected and UpToDate.

    DRBD's quorum does it: it is evaluated in the change of state in which a replica is lost, so
    before another write ends (drbd_state.c, calc_quorum; drbdsetup-9.0(8),
    quorum-minimum-redundancy). A replica that is lost already when this is called freezes nothing.

    Raises:
        CommandError: refused, or DRBD did not answer.
    """
    runner.run(
        ["drbdsetup", "resource-options", name, "--quorum-minimum-redundancy=2"],
        timeout_s=_TIMEOUT_S,
    )


def require_majority(runner: Runner, name: str, *, replica_count: int) -> None:
    """Let a majority of the replicas be enough again, also for I/O that is frozen now.

    DRBD 9.3.3 evaluates that again only where `quorum` changes (drbd_main.c, set_resource_options):
    so `quorum` is the majority's number for a moment, which is never less than the majority.

    A resource that is not up is fine.

    Raises:
        CommandError: refused, or DRBD did not answer.
    """
    for quorum in (str(replica_count // 2 + 1), "majority"):
        runner.run(
            ["drbdsetup", "resource-options", name,
             "--quorum-minimum-redundancy=off", f"--quorum={quorum}"],
            timeout_s=_TIMEOUT_S,
            ok=(0, _NO_SUCH_RESOURCE),
        )  # fmt: skip


def end_quorum(runner: Runner, name: str) -> None:
    """Let DRBD 9 go on without a majority: before peers are ended of which two replicas are left.

    `drbdadm adjust` gives DRBD the options of a resource before it ends peers, too
    (drbdadm.h, drbd_cfg_stage).

    Raises:
        CommandError: refused, or DRBD did not answer.
    """
    runner.run(["drbdsetup", "resource-options", name, "--quorum=off"], timeout_s=_TIMEOUT_S)


def fence_before_going_on(runner: Runner, name: str, node_id: int) -> None:
    """Have a Primary of DRBD 9 that loses this peer freeze its I/O until a handler has answered.

    Taken at once, whatever the connection's state (drbd_nl.c, drbd_adm_net_opts).

    Raises:
        CommandError: refused, or DRBD did not answer.
    """
    runner.run(
        ["drbdsetup", "net-options", name, str(node_id), "--fencing=resource-and-stonith"],
        timeout_s=_TIMEOUT_S,
    )


def force_detach(runner: Runner, minor: int) -> None:
    """Detach from a disk that has failed, as DRBD does at an error: without waiting for it.

    Raises:
        CommandError: refused.
    """
    runner.run(["drbdsetup", "detach", str(minor), "--force"], timeout_s=_TIMEOUT_S)


def down(runner: Runner, name: str) -> None:
    """Disconnect and detach; a resource that is down already is fine.

    DRBD 8.4 refuses a disconnect while two replicas are getting to know each other; that is over
    within a moment (drbd_state.c, SS_IN_TRANSIENT_STATE).

    Raises:
        CommandError: refused, or DRBD did not answer.
    """
    deadline_s = time.monotonic() + _HANDSHAKE_S
    while True:
        try:
            runner.run(["drbdsetup", "down", name], timeout_s=_TIMEOUT_S, ok=(0, _NO_SUCH_RESOURCE))
        except CommandError as error:
            if _TRANSIENT not in str(error) or time.monotonic() >= deadline_s:
                raise
            time.sleep(_POLL_S)
        else:
            return


def disconnect_peer(runner: Runner, name: str, node_id: int, *, is_forced: bool = False) -> None:
    """End the connection to one peer of DRBD 9; one that has ended is fine (drbdsetup-9.0(8)).

    Forced: without the peer's agreement.

    Raises:
        CommandError: refused, or DRBD did not answer.
    """
    force = ["--force"] if is_forced else []
    runner.run(["drbdsetup", "disconnect", name, str(node_id), *force], timeout_s=_TIMEOUT_S)


def connect_peer(runner: Runner, name: str, node_id: int) -> None:
    """Connect to a peer of DRBD 9 that is StandAlone; nothing else of the resource is adjusted.

    Raises:
        CommandError: refused, as where it is connected or connecting already.
    """
    runner.run(["drbdsetup", "connect", name, str(node_id)], timeout_s=_TIMEOUT_S)


def new_peer(runner: Runner, name: str, node_id: int, node: str) -> None:
    """Make a peer known to a resource of DRBD 9, without an address: nothing connects.

    Raises:
        CommandError: refused, also where the peer is known already.
    """
    runner.run(
        ["drbdsetup", "new-peer", name, str(node_id), f"--_name={node}", "--protocol=C"],
        timeout_s=_TIMEOUT_S,
    )


def delete_peer(runner: Runner, name: str, node_id: int) -> None:
    """End the connection to a peer of DRBD 9 and forget its name; its bitmap stays.

    Raises:
        CommandError: refused, or DRBD did not answer.
    """
    runner.run(["drbdsetup", "del-peer", name, str(node_id)], timeout_s=_TIMEOUT_S)


def forget_peer(runner: Runner, name: str, node_id: int) -> None:
    """Free the slot of a peer in DRBD 9's metadata; a peer that has no slot is fine.

    The metadata have room for three peers. The slot of a node that is gone takes a place, and says
    which blocks to send of other data should a node of that number ever come again
    (drbdsetup-9.0(8)).

    Raises:
        CommandError: the peer is still configured, or DRBD did not answer.
    """
    runner.run(["drbdsetup", "forget-peer", name, str(node_id)], timeout_s=_TIMEOUT_S)


def force_up_to_date(runner: Runner, name: str, minor: int) -> None:
    """Declare a replica that is Outdated to be UpToDate: what only the peer had is given up."""
    runner.run(["drbdsetup", "primary", _subject(name, minor), "--force"], timeout_s=_TIMEOUT_S)
    secondary(runner, name, minor, timeout_s=_TIMEOUT_S)


def _subject(name: str, minor: int) -> str:
    """Return the argument of `primary` and `secondary`: 8.4 takes a minor, 9 a resource."""
    return name if drbd_kernel.generation() >= 9 else str(minor)


def primary(runner: Runner, name: str, minor: int, *, timeout_s: float) -> None:
    """Make this node Primary; DRBD calls the fence-peer handler first where it has to.

    Raises:
        CommandError: refused, or not done in time.
    """
    runner.run(["drbdsetup", "primary", _subject(name, minor)], timeout_s=timeout_s)


def is_refused_for_peer(error: SanctlError) -> bool:
    """Whether `primary` was refused because of peers without contact.

    One is not certain to be outdated: so DRBD answers wherever its fence-peer handler was not
    certain, and where it noticed the loss of the peer in the same attempt (drbd_nl.c,
    drbd_set_role). Or, with DRBD 9, no majority of the replicas is seen.
    """
    return any(each in str(error) for each in _REFUSED_FOR_PEERS)


def secondary(runner: Runner, name: str, minor: int, *, timeout_s: float) -> None:
    """Make this node Secondary; a resource that is not up is fine.

    Raises:
        CommandError: a process holds the device open, or I/O hangs.
    """
    runner.run(
        ["drbdsetup", "secondary", _subject(name, minor)],
        timeout_s=timeout_s,
        ok=(0, _NO_SUCH_RESOURCE),
    )


def skip_initial_sync(runner: Runner, minor: int) -> None:
    """Declare two new, zero-filled, connected replicas to be the same, and UpToDate.

    DRBD itself refuses unless both have never held data (drbdsetup-8.4(8), new-current-uuid).
    """
    runner.run(
        ["drbdsetup", "new-current-uuid", "--clear-bitmap=yes", str(minor)], timeout_s=_TIMEOUT_S
    )


def resize(runner: Runner, minor: int, *, has_peers: bool) -> None:
    """Let the device grow to the size of the smallest replica.

    `assume-clean`, because both files grew by a hole: the new part reads as zeros on every
    replica, and nothing has to be sent. Without a peer DRBD 8.4 refuses that ("Protocol version 93
    required"), and grows only with `assume-peer-has-space` (drbdsetup-8.4(8), resize): without the
    option it reports success and keeps its size.
    """
    assumed = "--assume-clean=yes" if has_peers else "--assume-peer-has-space=yes"
    runner.run(["drbdsetup", "resize", str(minor), assumed], timeout_s=_TIMEOUT_S)
