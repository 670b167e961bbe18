# SPDX-License-Identifier: GPL-2.0-or-later
"""Two Linux hosts share a device by mpathpersist and fence_mpath, through failovers (ADR 83).

Each host is a machine of its own, with its kernel's initiator and its multipath device: the
laboratory's host, and the witness, which stores nothing. The loser is fenced by reservation, as a
cluster of hosts does it with fence_mpath, while the storage fails over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.machines.spec import Network

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "fenced0"
#: The second host, and where sanctl is called: none of these tests takes it down.
WITNESS = "n3"
KEYS = (0xA0, 0xB1)
#: Write Exclusive, Registrants Only: what fence_mpath reserves with.
TYPE = "--prout-type=5"
SERVED_S, BACK_S = 180.0, 400.0
_CONF, _KEYS_CONF = "/etc/multipath/conf.d/sanctl.conf", "/etc/multipath/conf.d/keys.conf"
_KEY = re.compile(r"^\s*0x([0-9a-f]+)\s*$", re.M)
_HOLDER = re.compile(r"Key = 0x([0-9a-f]+)")


class Pair:
    """Two hosts with the multipath device of one target."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.bed = scenario, scenario.bed
        self.hosts = (scenario.host, Initiator(scenario.bed, WITNESS))
        self.target = f"{scenario.iqn_prefix()}.{NAME}"
        self.portals = [node.address(Network.ISCSI) for node in self.bed.storage]
        self.disk = ""

    def set_up(self) -> None:
        """Have the witness be a host like the laboratory's own; keys are kept in a file."""
        conf = self.hosts[0].sh(f"cat {_CONF}")
        self.bed.sh(WITNESS, f"mkdir -p /etc/multipath/conf.d; cat >{_CONF}", stdin=conf)
        iscsid = self.hosts[0].sh("cat /etc/iscsi/iscsid.conf")
        self.bed.sh(WITNESS, "cat >/etc/iscsi/iscsid.conf", stdin=iscsid)
        self.hosts[1].sh("systemctl start iscsid.socket multipathd")
        for host in self.hosts:
            self.bed.sh(
                host.name, f"cat >{_KEYS_CONF}", stdin="defaults {\n    reservation_key file\n}\n"
            )
            host.sh("multipathd reconfigure")
        disks = {host.login(self.target, self.portals) for host in self.hosts}
        assert len(disks) == 1, "the same WWID, so the same name, on each host"
        self.disk = disks.pop()

    def take_down(self) -> None:
        """Leave both machines as they were."""
        for host in self.hosts:
            host.sh(f"rm -f /etc/multipath/prkeys {_KEYS_CONF}; multipathd reconfigure; true")
            host.logout(self.target)
        self.hosts[1].sh(
            f"systemctl stop multipathd multipathd.socket iscsid.socket iscsid; rm -f {_CONF}; true"
        )

    def out(self, host: int, options: str) -> int:
        """Send a PERSISTENT RESERVE OUT by all paths; return mpathpersist's status."""
        result = self.bed.sh(
            self.hosts[host].name,
            # As told of each path: what fails is in the report.
            f"mpathpersist -v 3 --out {options} {self.disk} 2>&1",
            ok=range(256),
            timeout_s=120,
        )
        told = "".join(f"\n  {line}" for line in result.stdout.splitlines()[-12:])
        print(f"host {host}: {options}: {result.status}{told if result.status else ''}")
        return result.status

    def keys(self, host: int) -> set[int]:
        """Return the keys that a host is shown; LIO's one for both of its paths counts once."""
        out = self.hosts[host].sh(f"mpathpersist --in --read-keys {self.disk}")
        return {int(key, 16) for key in _KEY.findall(out)}

    def holder(self, host: int) -> int | None:
        """Return the key that holds the device, as a host is shown."""
        out = self.hosts[host].sh(f"mpathpersist --in --read-reservation {self.disk}")
        found = _HOLDER.search(out)
        return None if found is None else int(found[1], 16)

    def writes(self, host: int) -> bool:
        """Whether a write of a host to its multipath device is made; else it is refused."""
        script = (
            f"timeout 100 dd if=/dev/zero of={self.disk} bs=4096 seek={256 + host} count=1"
            " oflag=direct 2>&1"
        )
        result = self.bed.sh(self.hosts[host].name, script, ok=range(256), timeout_s=120)
        assert result.status in {0, 1}, f"no answer at all: {result.stdout}"
        return result.status == 0

    def active(self) -> str:
        """Return the node that serves, as the kernels say."""
        return collect.active_node(self.bed, NAME)

    def await_paths(self) -> None:
        """Wait for both replicas in sync, and both paths of both hosts."""
        await_members_online(self.bed)
        wait_for(
            "both replicas",
            lambda: collect.is_in_sync(self.bed, self.active(), NAME),
            within_s=BACK_S,
        )
        for host in self.hosts:
            wait_for(f"both paths of {host.name}", partial(self._has_paths, host), within_s=BACK_S)

    def _has_paths(self, host: Initiator) -> bool:
        # dm's state, not the checker's: the path of a standby is a ghost there.
        lines = host.sh("multipathd show paths raw format '%m %t'").splitlines()
        return [line.split() for line in lines].count([self._map, "active"]) == 2

    @property
    def _map(self) -> str:
        return self.disk.rpartition("/")[2]


@pytest.fixture(scope="module")
def pair(scenario: Scenario) -> Iterator[Pair]:
    """A device with reservations on, served by n1, at which both hosts are logged in."""
    found = Pair(scenario)
    await_members_online(scenario.bed)
    allowed = [each for host in found.hosts for each in ("--initiator", host.iqn)]
    scenario.sanctl(
        "device", "create", NAME, "--size", "64M", "--nodes", "n1,n2", "--prefer", "n1",
        "--reservations", "on", *allowed, node=WITNESS, timeout_s=300,
    )  # fmt: skip
    try:
        found.set_up()
        yield found
    finally:
        found.take_down()
        scenario.delete_together([NAME])


def test_hosts_register_by_all_their_paths(pair: Pair) -> None:
    """mpathpersist asks by all paths at once, and its daemon has the key for those to come."""
    for host, key in enumerate(KEYS):
        assert pair.out(host, f"--register --param-sark={key:x}") == 0
    for host in (0, 1):
        assert pair.keys(host) == set(KEYS)
    assert pair.out(0, f"--reserve --param-rk={KEYS[0]:x} {TYPE}") == 0
    assert pair.holder(1) == KEYS[0]
    assert pair.writes(0)
    assert pair.writes(1), "registrants write"


def test_both_write_on_through_a_failover(pair: Pair) -> None:
    """A node that serves is lost, and comes back: nobody has to register again."""
    pair.await_paths()
    lost = pair.active()
    pair.bed.cut_power(lost)
    try:
        wait_for("another node", lambda: pair.active() not in {lost, ""}, within_s=SERVED_S)
        for host in (0, 1):
            assert pair.writes(host)
            assert pair.keys(host) == set(KEYS)
        assert pair.holder(1) == KEYS[0]
    finally:
        pair.bed.ensure_power(lost)
    pair.await_paths()
    assert pair.keys(0) == pair.keys(1) == set(KEYS)


def test_the_loser_is_fenced_while_the_storage_fails_over(pair: Pair) -> None:
    """The loser's paths come back, and its daemon registers nothing that was taken away."""
    lost = pair.active()
    preempt = f"--preempt-abort --param-rk={KEYS[1]:x} --param-sark={KEYS[0]:x} {TYPE}"
    assert pair.out(1, preempt) == 0
    pair.bed.cut_power(lost)
    try:
        wait_for("another node", lambda: pair.active() not in {lost, ""}, within_s=SERVED_S)
        assert pair.writes(1)
        assert not pair.writes(0)
    finally:
        pair.bed.ensure_power(lost)
    pair.await_paths()
    assert pair.keys(1) == {KEYS[1]}
    assert pair.holder(1) == KEYS[1]
    assert not pair.writes(0)
    assert pair.writes(1)


def test_fence_mpath_fences_and_lets_back(pair: Pair) -> None:
    """The fence agent of a cluster of hosts, as the survivor calls it."""
    # As it says why: what fails is in the report.
    agent = f"fence_mpath --verbose --devices={pair.disk}"
    first, second = pair.hosts

    def unfence(host: Initiator, key: int) -> bool:
        host.sh(f"{agent} --plug={key:x} --action=on", timeout_s=120)
        return True

    for host, key in zip(pair.hosts, KEYS, strict=True):
        host.sh(f"multipathd setprkey map {pair.disk.rpartition('/')[2]} key 0x{key:x}")
        unfence(host, key)
    assert pair.keys(0) == set(KEYS)
    assert pair.writes(0)
    assert pair.writes(1)
    second.sh(f"{agent} --plug={KEYS[0]:x} --action=off", timeout_s=120)
    status = f"{agent} --plug={KEYS[0]:x} --action=status"
    # 2: the agent's word for "off".
    assert pair.bed.sh(second.name, status, ok=range(256), timeout_s=60).status == 2
    assert not pair.writes(0)
    assert pair.writes(1)
    # Until its next monitor the standby has the old registration, and mpathpersist, which is
    # refused there, takes the new one back by all paths: it is tried again, as clusters do.
    wait_for("it to be let back", lambda: unfence(first, KEYS[0]), within_s=60, every_s=3.0)
    assert pair.writes(0)
