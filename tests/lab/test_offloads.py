# SPDX-License-Identifier: GPL-2.0-or-later
"""Offloads of hosts: copies within a device, locks by COMPARE AND WRITE, zeros, UNMAP.

They are told alike on all paths, and none is lost, done twice or done half over a move and a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import offload_runner

NAME, OTHER = "offload0", "offload1"
LOG, STOP = f"/run/{NAME}.json", f"/run/{NAME}.stop"
ENDS_WITHIN_S, SERVED_WITHIN_S, WHOLE_WITHIN_S = 240.0, 120.0, 300.0
#: Prints the pages in which a disk says what it offers; 3PC: EXTENDED COPY.
_OFFERS = (
    "sg_inq {0} | grep -o 3PC=.; sg_vpd --page=bl {0}; sg_vpd --page=lbpv {0};"
    " sg_vpd --page=di {0} | grep -i 0x6"
)


@pytest.fixture(scope="module")
def disk(scenario: Scenario) -> Iterator[str]:
    """The host's multipath device of a device that n1 serves."""
    target = scenario.create(NAME, "128M", prefer="n1", nodes=("n1", "n2"))
    try:
        yield scenario.host.login(target, scenario.portals(("n1", "n2")))
    finally:
        scenario.delete(NAME)


def naa(scenario: Scenario, disk: str) -> str:
    """Return the disk's NAA identifier in hexadecimal; multipath puts the type before it."""
    found = scenario.host.sh(f"dmsetup info -c --noheadings -o uuid {disk}").strip()
    return found.removeprefix("mpath-3")


def network_bytes(scenario: Scenario) -> int:
    """Return what the host has sent and got so far, in bytes; not what it sent to itself."""
    out = scenario.host.sh("cat /proc/net/dev")
    rows = [line.replace(":", " ").split() for line in out.splitlines() if ":" in line]
    return sum(int(row[1]) + int(row[9]) for row in rows if row[0] != "lo")


def test_all_paths_offer_the_same(scenario: Scenario, disk: str) -> None:
    """A host that is told something else by a standby uses it, or leaves it, after a failover."""
    target = f"{scenario.iqn_prefix()}.{NAME}"
    offers = [
        scenario.host.sh(_OFFERS.format(f"/dev/{path}"))
        for path in scenario.host.paths(target, scenario.portals(("n1", "n2")))
    ]
    assert "Maximum compare and write length: 0x1\n" in offers[0]
    assert "3PC=1" in offers[0]
    assert "Optimal transfer length: 0x800\n" in offers[0]
    assert offers[0] == offers[1]


def test_a_copy_does_not_cross_the_network_of_hosts(scenario: Scenario, disk: str) -> None:
    sh = scenario.host.sh
    sh(f"dd if=/dev/urandom of={disk} bs=1M count=16 seek=64 oflag=direct", timeout_s=120)
    before = network_bytes(scenario)
    out = sh(
        f"sg_xcopy if={disk} of={disk} bs=512 count=32768 skip=131072 seek=180224 bpt=512 2>&1",
        timeout_s=120,
    )
    crossed = network_bytes(scenario) - before
    print(out, crossed)
    assert crossed < 1 << 20, "16 MiB were to be copied by the node"
    sh(
        f"test $(dd if={disk} bs=1M count=16 skip=64 iflag=direct | sha256sum | cut -c-64)"
        f" = $(dd if={disk} bs=1M count=16 skip=88 iflag=direct | sha256sum | cut -c-64)",
        timeout_s=120,
    )


def test_a_copy_between_devices_is_refused_and_writes_nothing(
    scenario: Scenario, disk: str
) -> None:
    """Both are served by one node (ADR 81). A host that is refused copies by itself."""
    sh, count = scenario.host.sh, 16
    target = scenario.create(OTHER, "64M", prefer="n1", nodes=("n1", "n2"))
    try:
        other = scenario.host.login(target, scenario.portals(("n1", "n2")))

        def digest(path: str) -> str:
            read = f"dd if={path} bs=1M count={count} iflag=direct 2>/dev/null | sha256sum"
            return sh(read, timeout_s=120).split()[0]

        for path in (disk, other):
            sh(f"dd if=/dev/urandom of={path} bs=1M count={count} oflag=direct", timeout_s=120)
        before = digest(disk), digest(other)
        assert before[0] != before[1]
        for asked in ("--on_src", "--on_dst"):
            copy = f"sg_xcopy {asked} if={disk} of={other} bs=512 count={count << 11} bpt=512"
            done = scenario.bed.sh(scenario.host.name, f"{copy} 2>&1", ok=range(256), timeout_s=120)
            print(f"{asked}: exit status {done.status}\n{done.stdout}")
            assert done.status != 0
            assert (digest(disk), digest(other)) == before
        sh(
            f"dd if={disk} of={other} bs=1M count={count} iflag=direct oflag=direct conv=fsync",
            timeout_s=120,
        )
        assert digest(other) == digest(disk) == before[0]
    finally:
        scenario.delete(OTHER)


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_none_is_lost_over_a_move_and_a_crash(scenario: Scenario, disk: str) -> None:
    bed, host = scenario.bed, scenario.host
    bed.sh(host.name, f"rm -f {LOG} {STOP}; cat > /run/{NAME}.py", stdin=source())
    host.sh(
        f"systemd-run --quiet --collect --unit {NAME} -p StandardOutput=truncate:{LOG}"
        f" python3 /run/{NAME}.py {disk} {naa(scenario, disk)} {STOP}"
    )
    scenario.sanctl("device", "move", NAME, "--to", "n2", timeout_s=120)
    bed.cut_power("n2")
    wait_for(
        "n1 to serve",
        lambda: collect.active_node(bed, NAME) == "n1",
        within_s=SERVED_WITHIN_S,
    )
    bed.ensure_power("n2")
    wait_for("both replicas", lambda: collect.is_in_sync(bed, "n1", NAME), within_s=WHOLE_WITHIN_S)
    host.sh(f"touch {STOP}")
    wait_for(
        "the end of the offloads",
        lambda: host.sh(f"systemctl is-active {NAME}", ok=range(256)).strip() == "inactive",
        within_s=ENDS_WITHIN_S,
    )
    found: dict[str, Any] = json.loads(host.sh(f"cat {LOG}"))
    print(found)
    assert found["wrong"] == []
    assert found["rounds"] > offload_runner.SLOTS
    surplus = found["counter"] - found["acknowledged"]
    assert 0 <= surplus <= found["unknown"]


def source() -> str:
    """Return the text of what runs on the host."""
    with open(offload_runner.__file__) as text:
        return text.read()
