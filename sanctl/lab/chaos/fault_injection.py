# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out one fault on a laboratory's nodes and networks, and undoes it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import assert_never

from sanctl.errors import CommandError, NotConverged, Problem
from sanctl.lab.chaos.fault import (
    AgentKilled,
    BadDisk,
    ClockJump,
    CopyKilled,
    CutDuringMove,
    DaemonKilled,
    DuringResync,
    Fault,
    FilesystemFull,
    OneWayLoss,
    Partition,
    PoolsFull,
    PowerCut,
    PowerCutSeries,
    Reboot,
    SiteFull,
    SiteLinkCut,
    SlowLink,
)
from sanctl.lab.chaos.site_faults import SiteFaults
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.machines import network, network_cuts, node_faults, node_power
from sanctl.lab.machines.network_cuts import Cut
from sanctl.lab.machines.spec import Network, Role
from sanctl.system.runner import LocalRunner

_RESYNC_DEADLINE_S = 120.0
_POWER_BACK_S = 20.0
_DAEMON_DEADLINE_S = 30.0
_REBOOT_DEADLINE_S = 150.0
_MOVE_DEADLINE_S = 180.0
_DISK = 1

# 64 KiB at a time, 4 MiB on each device that a ledger on this host writes to.
_WRITE_TO_NEW_PLACES = """
for device in $(pgrep -af 'ledger.*write' | sed -n 's/.*--device \\([^ ]*\\).*/\\1/p' | sort -u); do
    setsid dd if=/dev/urandom of=$device bs=64k count=64 seek={at} oflag=direct conv=notrunc \\
        </dev/null >/dev/null 2>&1 &
done
"""

PrintLine = Callable[[str], None]


class FaultInjector:
    """Injects faults into one laboratory, and undoes them."""

    def __init__(self, bed: LabSession, device: str, print_line: PrintLine) -> None:
        self.bed = bed
        self.lab = bed.lab
        self.device = device  # moved by AgentKilled and CutDuringMove
        self.print_line = print_line
        self.site: SiteFaults | None = None
        self._runner = LocalRunner()
        self._move: threading.Thread | None = None

    def inject(self, fault: Fault) -> None:
        """Break something.

        Raises:
            CommandError: the lab could not do it.
            NotConverged: the state to break was not reached (no resync began).
        """
        lab, runner = self.lab, self._runner
        match fault:
            case PowerCut(nodes=nodes):
                for node in nodes:
                    self.bed.cut_power(node)
            case PowerCutSeries():
                self._cut_one_after_the_other(fault)
            case Partition():
                network_cuts.change(lab, runner, add=self._partition(fault))
            case OneWayLoss():
                network_cuts.change(lab, runner, add=[_one_way(fault)])
            case SlowLink(network=name, node=node, delay_ms=delay):
                network.plug(lab, self.bed.node(node), Network(name), runner, delay_ms=delay)
            case DaemonKilled(node=node, daemon=daemon):
                node_faults.kill_daemon(lab, self.bed.node(node), daemon, runner)
            case BadDisk(node=node, does=does):
                node_faults.break_disk(
                    lab, self.bed.node(node), _DISK, node_faults.DiskBehaviour(does), runner
                )
            case FilesystemFull(node=node, place=place):
                node_faults.fill_filesystem(
                    lab, self.bed.node(node), node_faults.FilledFilesystem(place), runner
                )
            case PoolsFull():
                self._fill_pools(fault)
            case ClockJump(node=node, seconds=seconds):
                node_faults.jump_clock(lab, self.bed.node(node), seconds, runner)
            case AgentKilled(step=step):
                self._kill_agent(step)
            case CutDuringMove():
                self._cut_during_move(fault)
            case Reboot(node=node):
                self._reboot(node)
            case DuringResync(node=node, then=then):
                self._await_resync_of(node)
                self.print_line(f"{node} is being resynced")
                self.inject(then)
            case SiteLinkCut() | SiteFull() | CopyKilled():
                assert self.site is not None
                self.site.inject(fault)
            case _:
                assert_never(fault)

    def undo(self, fault: Fault) -> None:
        """Take a fault back; the recovery is left to the cluster.

        Raises:
            CommandError: the lab could not do it.
        """
        lab, runner = self.lab, self._runner
        match fault:
            case PowerCut(nodes=nodes):
                for node in nodes:
                    self.ensure_power(node)
            case PowerCutSeries(power_on=nodes, power_on_gap_s=gap_s):
                for number, node in enumerate(nodes):
                    # The order and the gaps are a part of the fault.
                    time.sleep(gap_s if number else 0)
                    self.ensure_power(node)
            case Partition():
                network_cuts.change(lab, runner, remove=self._partition(fault))
            case OneWayLoss():
                network_cuts.change(lab, runner, remove=[_one_way(fault)])
            case SlowLink(network=name, node=node):
                with suppress(
                    CommandError
                ):  # the node may be booting: its delay ended with its power
                    network.plug(lab, self.bed.node(node), Network(name), runner)
            case BadDisk(node=node):
                self._mend_disk(node)
            case FilesystemFull(node=node):
                self._heal_when_up(node)
            case PoolsFull(nodes=nodes):
                for node in nodes:
                    self._heal_when_up(node)
            case ClockJump(node=node):
                self._heal_when_up(node)
            case AgentKilled():
                for each in self.bed.storage:
                    with suppress(CommandError):
                        self.bed.sh(each.name, "rm -rf /run/sanctl/die-after")
            case CutDuringMove():
                network_cuts.change(lab, runner, remove=self._sync_cut())
                self._await_move()
            case DuringResync(node=node, then=then):
                self.undo(then)
                self.ensure_power(node)
            case DaemonKilled(node=node, daemon=daemon):
                if self.bed.node(node).role is Role.INITIATOR:
                    self._await_daemon(node, daemon)
            case SiteLinkCut() | SiteFull() | CopyKilled():
                assert self.site is not None
                self.site.undo(fault)
            case Reboot():
                pass
            case _:
                assert_never(fault)

    def _fill_pools(self, fault: PoolsFull) -> None:
        """Fill pools, then have each host write to the devices that have a ledger.

        The hosts' writes are not waited for: they may be frozen until there is room again.
        """
        for node in fault.nodes:
            node_faults.fill_filesystem(
                self.lab, self.bed.node(node), node_faults.FilledFilesystem.POOL, self._runner
            )
        for host in fault.hosts:
            self.bed.sh(host, _WRITE_TO_NEW_PLACES.format(at=fault.at_mib * 16), timeout_s=30)

    def _await_daemon(self, host: str, daemon: str) -> None:
        """Wait until a host's daemon runs again: sessions that are up would hide its absence."""
        wait_for(
            f"{daemon} to run again on {host}",
            lambda: self.bed.sh(host, f"pgrep -x {daemon}", ok=(0, 1)).status == 0,
            within_s=_DAEMON_DEADLINE_S,
        )

    def _cut_one_after_the_other(self, fault: PowerCutSeries) -> None:
        for number, node in enumerate(fault.cuts):
            # The gaps are a part of the fault.
            time.sleep(fault.gaps_s[number - 1] if number else 0)
            self.bed.cut_power(node)
            if node in fault.cuts[number + 1 :]:
                self.ensure_power(node)

    def ensure_power(self, node: str) -> None:
        """Switch a node on, unless fencing has done it already."""
        node_power.power_on(self.lab, self.bed.node(node), post_delay_s=0)

    def heal(self) -> tuple[str, ...]:
        """Undo everything, whatever was done; return what could not be undone."""
        if self.site is not None:
            self.site.heal()
        return node_faults.heal(self.lab, self._runner)

    def _partition(self, fault: Partition) -> frozenset[Cut]:
        found: set[Cut] = set()
        for name in fault.networks:
            members = [n.name for n in self.lab.machines if Network(name) in n.networks]
            side = [node for node in members if node in fault.side]
            found |= network_cuts.partition(
                Network(name),
                [side, [node for node in members if node not in side]],
                is_udp_only=fault.is_corosync_only,
            )
        return frozenset(found)

    def _kill_agent(self, step: str) -> None:
        for node in self.bed.storage:
            self.bed.sh(
                node.name, f"mkdir -p /run/sanctl/die-after; : >/run/sanctl/die-after/{step}"
            )
        self._move_device()
        left = [
            node.name
            for node in self.bed.storage
            if self.bed.sh(node.name, f"ls /run/sanctl/die-after/{step}", ok=range(256)).status == 0
        ]
        if len(left) == len(self.bed.storage):
            raise NotConverged(
                Problem("SAN-CHAOS-003", f"no agent came to step {step} of a move of {self.device}")
            )

    def _move_device(self) -> None:
        """Move the device; the command may fail, the audit judges the result."""
        target = self._other_than_active()
        with suppress(CommandError):
            self.bed.sh(
                target,
                f"sanctl device move {self.device} --to {target}",
                timeout_s=_MOVE_DEADLINE_S,
                ok=range(256),
            )

    def _cut_during_move(self, fault: CutDuringMove) -> None:
        if not fault.after_s:
            network_cuts.change(self.lab, self._runner, add=self._sync_cut())
        self._move = threading.Thread(target=self._move_device, name="move", daemon=True)
        self._move.start()
        if fault.after_s:
            # The moment is the fault.
            time.sleep(fault.after_s)
            network_cuts.change(self.lab, self._runner, add=self._sync_cut())

    def _await_move(self) -> None:
        """Return when the move's command has ended, with success or not.

        Raises:
            NotConverged: it has not ended.
        """
        if self._move is None:
            return
        self._move.join(_MOVE_DEADLINE_S + 30)
        if self._move.is_alive():
            raise NotConverged(
                Problem("SAN-CHAOS-002", f"the move of {self.device} does not come to an end")
            )
        self._move = None

    def _sync_cut(self) -> frozenset[Cut]:
        return network_cuts.partition(Network.SYNC, [[node.name] for node in self.bed.storage])

    def _other_than_active(self) -> str:
        active = collect.active_node(self.bed, self.device)
        return next(node.name for node in self.bed.storage if node.name != active)

    def _reboot(self, node: str) -> None:
        before = self._boot_id(node)
        self.bed.sh(node, "systemctl reboot", ok=range(256))

        def is_back() -> bool:
            # Where a reboot only powers the node off, it is switched on here.
            self.ensure_power(node)
            return self._boot_id(node) != before

        wait_for(f"{node} to boot again", is_back, within_s=_REBOOT_DEADLINE_S, every_s=1.0)

    def _boot_id(self, node: str) -> str:
        return self.bed.sh(node, "cat /proc/sys/kernel/random/boot_id", timeout_s=10).stdout

    def _await_resync_of(self, node: str) -> None:
        self.bed.cut_power(node)
        with suppress(NotConverged):
            wait_for(
                f"fencing to switch {node} on",
                lambda: self.bed.has_power(node),
                within_s=_POWER_BACK_S,
            )
        self.ensure_power(node)
        peers = [each.name for each in self.bed.storage if each.name != node]

        def is_target() -> bool:
            seen = [
                self.bed.sh(peer, "drbdsetup events2 --now", timeout_s=15).stdout for peer in peers
            ]
            return any(re.search(r"replication:(SyncSource|PausedSyncS)", out) for out in seen)

        wait_for(f"a resync of {node}", is_target, within_s=_RESYNC_DEADLINE_S, every_s=0.2)

    def _mend_disk(self, node: str) -> None:
        """Repair the disk; the agent remounts a filesystem that has shut itself down."""
        assert self.bed.node(node).role is Role.STORAGE
        self._heal_when_up(node)
        # The agent leaves more than three remounts a day to an operator.
        self.bed.sh(node, "rm -f /var/lib/sanctl/pools/*.mounted-anew", ok=range(256))
        wait_for(
            f"the pool on {node} to take writes again",
            lambda: self._takes_writes(node),
            within_s=_REBOOT_DEADLINE_S,
            every_s=2.0,
        )

    def _takes_writes(self, node: str) -> bool:
        done = self.bed.sh(
            node,
            "for mount in $(findmnt -rno TARGET -S /dev/mapper/lab-disk1); do"
            " touch $mount/.writable && rm $mount/.writable && exit 0; done; exit 1",
            ok=range(256),
            timeout_s=20,
        )
        return done.status == 0

    def _heal_when_up(self, node: str) -> None:
        spec = self.bed.node(node)
        self.ensure_power(node)
        wait_for(
            f"{node} to be healed",
            lambda: not node_faults.heal(self.lab, self._runner, nodes=[spec]),
            within_s=_REBOOT_DEADLINE_S,
            every_s=1.0,
        )


def _one_way(fault: OneWayLoss) -> Cut:
    return Cut(
        network=Network(fault.network),
        source=fault.source,
        target=fault.target,
        loss_pct=fault.loss_pct,
    )
