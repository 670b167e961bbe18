# SPDX-License-Identifier: GPL-2.0-or-later
"""The two stacks of `sanctl bench peers`, behind one interface: set up, move, tear down."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from sanctl.lab.bench import monitor_cost, peer_config
from sanctl.lab.bench.ledger_set import LedgerSet
from sanctl.lab.bench.many_devices import MARK, PEER_DISK
from sanctl.lab.bench.monitor_cost import RUNS_A_MINUTE, Monitor
from sanctl.lab.bench.peer_config import StockDevice
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online, require
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import peer_figures

_SIZE_MIB = 64
_PREFIX = "bench-ours"
_DEADLINE_S = 600.0
_STOCK_MARK = f"drbd-fence-by-handler-{peer_config.PREFIX}"
# A session without multipath has nowhere to go: its requests wait for the target. The default is
# 120 s, which a slow laboratory might exceed.
_REPLACEMENT_TIMEOUT_S = 600
_STOCK_UNITS = f"/etc/systemd/system/{peer_config.LOOP_UNIT}"


class Stack(Protocol):
    """A stack that serves some devices to the host."""

    name: str
    devices: tuple[str, ...]

    def set_up(self) -> None:
        """Create the devices, all served by the home node."""

    def tear_down(self) -> None:
        """Remove all of it again, or what there is of it."""

    def login(self, ledgers: LedgerSet, *options: str) -> None:
        """Log the host in to each device, and start a ledger on each."""

    def serving(self, device: str) -> str:
        """Return the node that serves a device; empty: none."""

    def move(self, to: str) -> None:
        """Order all devices to another node."""

    def settle(self) -> None:
        """Withdraw what a move has left in the configuration."""

    def is_whole(self, node: str) -> bool:
        """Whether all replicas are in sync, as a node sees it, and none is marked."""

    def monitors(self) -> dict[str, Monitor]:
        """Return the monitors of one active replica, by the agent's name."""


def _are_in_sync(bed: LabSession, node: str, names: Sequence[str]) -> bool:
    states = bed.sh(node, "drbdsetup events2 --now --statistics").stdout
    found = {name: set[str]() for name in names}
    for name, disk in PEER_DISK.findall(states):
        found.get(name, set()).add(disk)
    return all(disks == {"UpToDate"} for disks in found.values())


class OurStack:
    """Devices of sanctl, reached by multipath."""

    name = "sanctl"

    def __init__(self, scenario: Scenario, count: int) -> None:
        self._scenario = scenario
        self._bed = scenario.bed
        self._nodes = tuple(node.name for node in self._bed.storage[:2])
        self.devices = tuple(f"{_PREFIX}{number}" for number in range(count))

    def set_up(self) -> None:
        """Create the devices, all served by the home node."""
        home = self._nodes[0]
        within_s = 60.0 * (len(self.devices) + 2)
        await_members_online(self._bed)
        self._scenario.sanctl(
            "device", "create", *self.devices, "--size", f"{_SIZE_MIB}M", "--replicas", "2",
            "--nodes", ",".join(self._nodes), "--prefer", home,
            "--initiator", self._scenario.host.iqn, "--timeout", f"{within_s:.0f}",
            timeout_s=within_s + 60,
        )  # fmt: skip

    def tear_down(self) -> None:
        """Remove all of it again, or what there is of it."""
        for name in self.devices:
            if self._scenario.exists(name):
                self._scenario.delete(name)

    def login(self, ledgers: LedgerSet, *options: str) -> None:
        """Log the host in to each device, and start a ledger on each."""
        for name in self.devices:
            path = self._scenario.host.login(
                f"{self._scenario.iqn_prefix()}.{name}", self._scenario.portals(self._nodes)
            )
            ledgers.start(name, path, *options)

    def serving(self, device: str) -> str:
        """Return the node that serves a device; empty: none."""
        return collect.active_node(self._bed, device)

    def move(self, to: str) -> None:
        """Order all devices to another node."""
        with ThreadPoolExecutor(len(self.devices)) as pool:
            list(
                pool.map(
                    lambda name: self._scenario.sanctl(
                        "device", "move", name, "--to", to, node=to, timeout_s=_DEADLINE_S
                    ),
                    self.devices,
                )
            )

    def settle(self) -> None:
        """Withdraw what a move has left in the configuration."""

    def is_whole(self, node: str) -> bool:
        """Whether all replicas are in sync, as a node sees it, and none is marked."""
        cib = self._bed.sh(node, "cibadmin --query").stdout
        return not MARK.search(cib) and _are_in_sync(self._bed, node, self.devices)

    def monitors(self) -> dict[str, Monitor]:
        """Return the monitors of one active replica, by the agent's name."""
        device = self.devices[0]
        parameters = monitor_cost.device_parameters(self._bed)[device]
        return monitor_cost.our_monitors(device, parameters)


class StockStack:
    """DRBD, iSCSI target and floating address by the stock agents."""

    name = "stock agents"

    def __init__(self, scenario: Scenario, count: int) -> None:
        self._host = scenario.host
        self._bed = scenario.bed
        self._nodes = self._bed.storage[:2]
        self._home = self._nodes[0].name
        self._found = tuple(StockDevice(number=number) for number in range(count))
        self.devices = tuple(device.name for device in self._found)

    def cib(self) -> tuple[list[str], list[str]]:
        """Return the resources and constraints of the stack."""
        outsiders = [node.name for node in self._bed.cluster if node not in self._nodes]
        return peer_config.cib_elements(self._found, self._host.iqn, outsiders)

    def files(self) -> dict[str, str]:
        """Return the configuration files by path, those of one node."""
        return {
            **{
                f"/etc/drbd.d/{device.name}.res": peer_config.resource_file(device, self._nodes)
                for device in self._found
            },
            peer_config.IPTABLES: peer_config.IPTABLES_SCRIPT,
            _STOCK_UNITS: peer_config.loop_unit(self._found),
            peer_config.SYNC_SCRIPT: peer_config.sync_script(self._nodes[1].address(Network.SYNC)),
        }

    def set_up(self) -> None:
        """Create the devices, all served by the home node."""
        await_members_online(self._bed)
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._prepare, (node.name for node in self._nodes)))
        self._trust_each_other()
        up = " && ".join(f"drbdadm up {name}" for name in self.devices)
        down = " && ".join(f"drbdadm down {name}" for name in self.devices)
        for node in self._nodes:
            self._bed.sh(node.name, up, timeout_s=_DEADLINE_S)
        for device in self._found:
            wait_for(
                f"the replicas of {device.name} to be connected",
                lambda device=device: self._bed.sh(  # type: ignore[misc]
                    self._home, f"drbdadm cstate {device.name}"
                ).stdout.startswith("Connected"),
                within_s=60,
            )
            self._bed.sh(
                self._home,
                f"drbdsetup new-current-uuid --clear-bitmap {device.minor}",
                timeout_s=_DEADLINE_S,
            )
        for node in self._nodes:
            self._bed.sh(node.name, down, timeout_s=_DEADLINE_S)
        resources, constraints = self.cib()
        self._bed.sh(
            self._home,
            "cibadmin --modify --allow-create --scope configuration --xml-pipe",
            stdin=f"<configuration><resources>{''.join(resources)}</resources>"
            f"<constraints>{''.join(constraints)}</constraints></configuration>",
        )
        wait_for("the stock stack to serve", self._are_all_served, within_s=_DEADLINE_S)
        if any(self.serving(name) != self._home for name in self.devices):
            self.move(self._home)
            wait_for("the stock stack at its home", self._are_all_home, within_s=_DEADLINE_S)
            self.settle()

    def _prepare(self, node: str) -> None:
        """Write one node's files, make its backing devices and DRBD's metadata."""
        for path, text in self.files().items():
            self._bed.sh(node, f"cat >{path}", stdin=text)
        peer = next(each for each in self._nodes if each.name != node)
        self._bed.sh(
            node,
            f"cat >{peer_config.SYNC_SCRIPT};"
            f" chmod 755 {peer_config.SYNC_SCRIPT} {peer_config.IPTABLES}",
            stdin=peer_config.sync_script(peer.address(Network.SYNC)),
        )
        files = " ".join(device.backing_file for device in self._found)
        self._bed.sh(
            node,
            f"mkdir -p {peer_config.FOLDER} {peer_config.TICKLE_FOLDER}"
            f" && for file in {files}; do fallocate -l {_SIZE_MIB}M $file || exit 1; done"
            f" && systemctl daemon-reload && systemctl enable --quiet --now {peer_config.LOOP_UNIT}"
            f" && for name in {' '.join(self.devices)}; do"
            " drbdadm create-md --force $name >/dev/null 2>&1 || exit 1; done",
            timeout_s=_DEADLINE_S,
        )

    def _trust_each_other(self) -> None:
        """Let each node copy files to the other, for portblock's `sync_script`."""
        key = f"/root/.ssh/{peer_config.PREFIX}"
        for node in self._nodes:
            peer = next(each for each in self._nodes if each != node)
            public = self._bed.sh(
                node.name,
                f"mkdir -p -m 700 /root/.ssh; [ -e {key} ] || ssh-keygen -q -t ed25519 -N '' -f"
                f" {key}; printf 'Host {peer.address(Network.SYNC)}\\n IdentityFile {key}\\n'"
                f" >/root/.ssh/config; sed 's/[^ ]*$/{peer_config.PREFIX}/' {key}.pub",
            ).stdout
            self._bed.sh(peer.name, "cat >>/root/.ssh/authorized_keys", stdin=public)

    def tear_down(self) -> None:
        """Remove all of it again, or what there is of it."""
        for device in self._found:
            self._host.sh(
                f"iscsiadm -m node -T {device.iqn} --logout;"
                f" iscsiadm -m node -T {device.iqn} -o delete; true",
                timeout_s=120,
            )
        node = self._bed.cluster[-1].name
        self._bed.sh(
            node,
            "; ".join(
                f"crm_resource --resource {name} --meta --set-parameter target-role"
                " --parameter-value Stopped"
                for device in self._found
                for name in (device.clone, device.name)
            ),
            timeout_s=120,
            ok=range(256),
        )
        wait_for("the stock stack to be stopped", self._is_stopped, within_s=_DEADLINE_S)
        # With them the constraints of a move or of DRBD's handler, whose ids have the name in them.
        self._bed.sh(
            node,
            "cibadmin --delete --delete-all --force --xpath"
            f" \"/cib/configuration/*/*[contains(@id, '{peer_config.PREFIX}')]\"",
            timeout_s=120,
            ok=range(256),
        )
        left = self._bed.sh(node, "cibadmin --query --scope configuration").stdout
        require(peer_config.PREFIX not in left, f"the CIB still names {peer_config.PREFIX}")
        for each in self._nodes:
            self._bed.sh(
                each.name,
                f"systemctl disable --quiet --now {peer_config.LOOP_UNIT};"
                + "".join(f" losetup -d {device.loop};" for device in self._found)
                + f" rm -rf {peer_config.FOLDER} {' '.join(self.files())} /root/.ssh/config"
                f" /root/.ssh/{peer_config.PREFIX}*;"
                f" sed -i '/ {peer_config.PREFIX}$/d' /root/.ssh/authorized_keys;"
                " systemctl daemon-reload",
                timeout_s=120,
            )

    def _is_stopped(self) -> bool:
        return all(
            not self._bed.sh(
                node.name,
                f"drbdsetup status {' '.join(self.devices)} 2>/dev/null | grep role:",
                ok=range(256),
            ).stdout
            for node in self._nodes
        )

    def login(self, ledgers: LedgerSet, *options: str) -> None:
        """Log the host in to each device, and start a ledger on each."""
        for device in self._found:
            self._host.sh(
                f"iscsiadm -m discovery -t sendtargets -p {device.address} >/dev/null"
                f" && iscsiadm -m node -T {device.iqn} -o update"
                f" -n node.session.timeo.replacement_timeout -v {_REPLACEMENT_TIMEOUT_S}"
                f" && iscsiadm -m node -T {device.iqn} -p {device.address} --login >/dev/null",
                timeout_s=120,
            )
            path = f"/dev/disk/by-path/ip-{device.address}:3260-iscsi-{device.iqn}-lun-0"
            wait_for(
                f"{path} on {self._host.name}",
                lambda path=path: (
                    not self._bed.sh(  # type: ignore[misc]
                        self._host.name, f"test -b {path}", ok=range(256)
                    ).status
                ),
                within_s=60,
            )
            ledgers.start(device.name, path, *options)

    def serving(self, device: str) -> str:
        """Return the node that serves a device; empty: none."""
        last = next(each.last_member for each in self._found if each.name == device)
        out = self._bed.sh(
            self._bed.cluster[-1].name,
            f"crm_resource --resource {last} --locate --quiet",
            ok=range(256),
        ).stdout
        found = re.findall(r"^(\S+)$", out, re.MULTILINE)
        return found[0] if len(found) == 1 else ""

    def _are_all_served(self) -> bool:
        return all(self.serving(name) for name in self.devices)

    def _are_all_home(self) -> bool:
        return all(self.serving(name) == self._home for name in self.devices)

    def move(self, to: str) -> None:
        """Order all devices to another node."""
        self._bed.sh(
            to,
            " && ".join(
                f"crm_resource --resource {name} --move --node {to}" for name in self.devices
            ),
            timeout_s=120,
        )

    def settle(self) -> None:
        """Withdraw what a move has left in the configuration."""
        self._bed.sh(
            self._home,
            " && ".join(f"crm_resource --resource {name} --clear" for name in self.devices),
            timeout_s=120,
        )

    def is_whole(self, node: str) -> bool:
        """Whether all replicas are in sync, as a node sees it, and none is marked."""
        cib = self._bed.sh(node, "cibadmin --query").stdout
        return _STOCK_MARK not in cib and _are_in_sync(self._bed, node, self.devices)

    def monitors(self) -> dict[str, Monitor]:
        """Return the monitors of one active replica, by the agent's name."""
        device = self._found[0]
        found = {
            peer_figures.STOCK_MONITOR: Monitor(
                monitor_cost.drbd_monitor(device.name), RUNS_A_MINUTE
            )
        }
        members: Mapping[str, tuple[str, dict[str, str]]] = peer_config.parameters(
            device, self._host.iqn
        )
        for name, (agent, parameters) in members.items():
            if parameters.get("action") != "block":
                program = monitor_cost.heartbeat_monitor(name, agent, parameters)
                found[f"ocf:heartbeat:{agent}"] = Monitor(program, RUNS_A_MINUTE)
        return found
