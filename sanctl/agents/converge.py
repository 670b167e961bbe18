# SPDX-License-Identifier: GPL-2.0-or-later
"""Applies changed parameters (size, nodes, access list, policies) to a replica that runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from sanctl.agents import ocf
from sanctl.agents.cache import flush_unit, read_cache, write_cache
from sanctl.agents.connections import peers
from sanctl.agents.points import unit as point_unit
from sanctl.agents.replica import (
    access_list,
    activity_log,
    device_files,
    gate_size,
    listed_portals,
    lost_writes,
    resource_file,
    resync_note,
    sync_policy,
)
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import hooks
from sanctl.agents.restore import closure as restore_closure
from sanctl.agents.restore import unit as restore_unit
from sanctl.agents.sync import tracking, unit, verify
from sanctl.drivers import backing_device, drbdadm, drbdsetup, page_cache
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover.promotion import NO_DISK
from sanctl.system import journal
from sanctl.system.runner import Runner

#: What fails after that would not be the only one: it hangs.
SLOW_FAILURE_S = 5.0
#: Carries out a change by DRBD's state; returns a newer one if the change may have made one.
Change = Callable[[Runner, ResourceState], ResourceState | None]


def converge(
    runner: Runner, device: Device, steps: ocf.Steps, state: ResourceState
) -> ResourceState:
    """Apply all that `Changes` has, one after the other.

    Returns:
        The state after that.

    Raises:
        SanctlError: a change could not be applied; the next monitor tries again, and applies those
            behind it, too.
    """
    for _, apply in Changes(device, steps).in_order():
        state = apply(runner, state) or state
    return state


class Changes:
    """The changes of a replica that runs: a failed one keeps no other from being applied.

    But for those that rely on it, which look for that themselves:

    * The list of nodes decides what a new resource file connects to, and by the present file those
      are disconnected that hold no replica any more. So no other file is written before the change
      of nodes is through, and DRBD grows no device without having been told of its peers.
    * Nothing goes back to a restore point before the kernel lets no host in.
    * No read cache is put below while hosts may unmap: an UNMAP would be lost in the exchange.

    Attributes:
        has_open_nodes: the change of nodes is not through, or not tried: no other resource file may
            be written. Not while I/O is frozen, when it waits.
    """

    def __init__(self, device: Device, steps: ocf.Steps) -> None:
        self._device, self._steps = device, steps
        self._has_nodes = self._knows_closure = False
        self.has_open_nodes = True

    def in_order(self) -> tuple[tuple[str, Change], ...]:
        """Return the changes, each with what it is about, in the order in which they are made."""
        return (
            ("write-back and access list", self.apply_access),
            ("replica nodes", self.apply_nodes),
            ("sync policy", self.apply_sync_policy),
            ("activity log", self.enlarge_activity_log),
            ("ordered copies", self.start_ordered),
            ("a verify", self.begin_verify),
            ("growth", self.grow),
            ("growth of the LUN", self.finish_growth),
            ("read cache", self.apply_read_cache),
        )

    def apply_access(self, runner: Runner, state: ResourceState) -> None:
        """Apply the cache policy and the access list, and what else has no other relying on it.

        A failure is logged here, unless it took long, and keeps none of the others from its turn.

        Raises:
            SanctlError, OSError: it took long.
        """
        device = self._device = restore_closure.as_known(runner, self._device)
        self._knows_closure = True
        with self._log_failure("device below DRBD"):
            backing_device.resume(device.name)
        with self._log_failure("DRBD handlers"):
            resource_file.register_for_handlers(device)
        with self._log_failure("note of a resync"):
            data = lost_writes.data_file(device.name)
            if data is not None:
                resync_note.prepare(device.name, data)
        # Before the other changes: this ends write-back where that is no longer allowed.
        with self._log_failure("cache policy"):
            write_cache.apply_policy(runner, device, state)
        with self._log_failure("flushes of an only good replica"):
            flush_unit.start_if_needed(runner, device.name, state)
        with self._log_failure("access list"):
            # A restore closes it in any case. While I/O is frozen an entry could not be removed:
            # its commands never end.
            leaves_list = _is_frozen(state) or (device.leaves_list and not device.restore)
            if not leaves_list and access_list.update(
                device, hooks.letting_in(device), hooks.keeping_out(device)
            ):
                self._steps.done(
                    "initiators",
                    f"access list: {', '.join(device.all_initiators) or 'no initiator'}",
                )
        with self._log_failure("list of other nodes' portals"):
            if listed_portals.update(device):
                self._steps.done("listing", "portals of the other replica nodes listed")

    def apply_nodes(self, runner: Runner, state: ResourceState) -> ResourceState:
        """Apply the wanted replica nodes, but not while I/O is frozen.

        The fence-peer handler is at work for a lost peer then.
        """
        # DRBD 9 calls a standby suspended that sees no majority of the replicas. It has no I/O, and
        # beside its Primary no handler at work: it has to follow where replicas that it misses were
        # dropped, or none could serve after the Primary's loss.
        is_standby = state.role == "Secondary" and state.has_primary_peer
        if _is_frozen(state) and not is_standby:
            self.has_open_nodes = False
            return state
        if peers.apply_replica_nodes(runner, self._device):
            self._steps.done("nodes", f"replicas on {', '.join(self._device.nodes)}")
            state = drbdsetup.observe(runner, self._device.name) or state
        self._has_nodes, self.has_open_nodes = True, False
        return state

    def apply_sync_policy(self, runner: Runner, state: ResourceState) -> None:
        """Apply a changed sync policy, and record what is in force."""
        if self.has_open_nodes:
            return
        device = self._device
        if not sync_policy.is_in_force(device) and _apply_sync_policy(runner, device, state):
            self._steps.done("policy", f"sync policy in force: {device.sync or 'the defaults'}")
        if sync_policy.is_in_force(device):
            sync_policy.record(device)

    def enlarge_activity_log(self, runner: Runner, state: ResourceState) -> None:
        """Give a standby that an earlier release has started the activity log of this one."""
        if not self.has_open_nodes and activity_log.enlarge(runner, self._device, state):
            self._steps.done("activity-log", "the activity log has its new size")

    def start_ordered(self, runner: Runner, state: ResourceState) -> None:
        """Start the copies that are ordered: restore points, and the way back to one."""
        if not self._knows_closure:
            return
        if restore_closure.is_closed_as_wanted(self._device):
            point_unit.start_if_ordered(runner, self._device, state)
        # Also where hosts are in still: it writes nothing before they are out, and gives the order
        # up where they do not get out.
        restore_unit.start_if_ordered(runner, self._device, state)

    def begin_verify(self, runner: Runner, state: ResourceState) -> ResourceState:
        """Begin a verify that is due, and have it looked after; a resync, too."""
        has_begun = False
        try:
            has_begun = verify.begin(runner, self._device, state)
        finally:
            if has_begun or tracking.needs_tracking(self._device, state):
                unit.start(runner)
        return drbdsetup.observe(runner, self._device.name) or state if has_begun else state

    def grow(self, runner: Runner, state: ResourceState) -> ResourceState:
        """Grow the files to the wanted size, and then DRBD, once all replicas' files have grown."""
        device = self._device
        if _size_bytes(state) >= device.size_bytes:
            return state
        if device_files.grow(device):
            self._steps.done("files", "device files grown")
        # Whether it has peers decides what DRBD takes for granted of them.
        if state.is_primary and self._has_nodes:
            # Refused until the peers' files have grown too.
            with contextlib.suppress(SanctlError):
                drbdsetup.resize(runner, device.minor, has_peers=len(device.nodes) > 1)
        return drbdsetup.observe(runner, device.name) or state

    def finish_growth(self, _runner: Runner, state: ResourceState) -> None:
        """Let hosts reach what DRBD has grown by."""
        if gate_size.finish_growth(self._device, _size_bytes(state)):
            self._steps.done("grown", "grown to the size that DRBD has")

    def apply_read_cache(self, runner: Runner, state: ResourceState) -> None:
        """Offer UNMAP to hosts as the policy has it; only once that is so apply the read cache."""
        read_cache.update_unmap_offer(self._device)
        if _size_bytes(state) >= self._device.size_bytes:
            read_cache.apply_policy(runner, self._device, state)

    @contextlib.contextmanager
    def _log_failure(self, subject: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        except page_cache.FlushUnfinished:
            # It has said so, and has ended in time: the rest does not hang.
            self._steps.is_idle = False
        except (SanctlError, OSError) as error:
            self._steps.is_idle = False
            if time.monotonic() - begun > SLOW_FAILURE_S:
                raise  # The rest would hang, too, and a monitor that times out is a failed one.
            name = self._device.name
            journal.write(
                f"{name}: {subject} could not be applied: {error}",
                priority=journal.ERROR,
                device=name,
                action="converge",
            )


def _is_frozen(state: ResourceState) -> bool:
    return state.suspended != "no"


def _size_bytes(state: ResourceState) -> int:
    return (state.size_kib or 0) * 1024


def _apply_sync_policy(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Apply a changed sync policy; return whether that was done.

    The policy is part of the DRBD resource file. The file is rewritten, and `drbdadm adjust` gives
    DRBD what differs. DRBD 8.4 takes all of it while it is connected, Primary, and resyncing, and
    hosts notice nothing.

    Not for a replica that has refused its peer (StandAlone): `drbdadm adjust` would connect it, and
    whether that is right is not decided here. The replica gets the policy when it is connected
    again. Nor for one without its disk, which `drbdadm adjust` would attach past the rules for that
    (recovery/reattach_disk.py): unmarked, say, where no replica has one. It gets the policy once
    its disk is back.

    Raises:
        SanctlError: DRBD did not take it; the next monitor tries again.
    """
    if any(peer.connection == "StandAlone" for peer in state.peers):
        return False
    if not state.peers and len(device.nodes) > 1:
        return False  # DRBD 8.4 does not list a connection that it has given up.
    if state.disk in NO_DISK:
        return False
    if not resource_file.rewrite(runner, device):
        return False
    drbdadm.adjust(runner, device.name)
    sync_policy.record(device)
    return True
