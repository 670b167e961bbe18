# SPDX-License-Identifier: GPL-2.0-or-later
"""Reservations are refused alike on all paths; LIO's dummy LUN 0 answers no host (ADR 55)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario

NAME = "resv0"
UNIT = f"reads-{NAME}"
LOG = f"/run/{NAME}"
#: Longer than the host waits before it logs in again, and shorter than it waits for that.
HELD_S = 1.0
CODE = "SANCTLPR"

#: Reads the disk's first block for a while; prints each thing that it got, once.
_READER = """
import mmap, os, time
seen, ends = set(), time.monotonic() + {duration_s}
handle, page = os.open("{disk}", os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
while time.monotonic() < ends:
    try:
        os.preadv(handle, [page], 0)
        got = "read " + ascii(bytes(page[:8]))[2:-1]
    except OSError as error:
        got = "refused " + error.strerror
        time.sleep(0.05)
    if got not in seen:
        seen.add(got)
        print(got)
print("end")
"""

#: Takes the host off a node's access list, and waits where the LUN is gone and the entry is not.
#: Prints how many sessions there were.
_SLOW_REMOVAL = """
cd /opt/sanctl/current && python3 - <<'SCRIPT'
import time
from sanctl.drivers import configfs, lio, lio_sessions
print(sum(each.device == "{name}" for each in lio_sessions.sessions()))
remove_links = configfs.remove_links
def slow(folder):
    remove_links(folder)
    time.sleep({held_s})
configfs.remove_links = slow
lio.set_initiators("{name}", [])
SCRIPT
"""


@pytest.fixture(scope="module")
def disks(scenario: Scenario) -> Iterator[list[str]]:
    """The host's disks of a device: of the node that serves, and of the standby."""
    target = scenario.create(NAME, "64M", prefer="n1", nodes=("n1", "n2"))
    try:
        portals = scenario.portals(("n1", "n2"))
        scenario.host.login(target, portals)
        yield [f"/dev/disk/by-path/ip-{each}:3260-iscsi-{target}-lun-0" for each in portals]
    finally:
        scenario.delete(NAME)


def test_reservations_are_refused_alike_on_all_paths(scenario: Scenario, disks: list[str]) -> None:
    """A standby that kept a state of its own would answer other keys than the node that serves."""
    active, standby = (
        [
            scenario.host.sh(f"sg_persist --no-inquiry {options} {disk} 2>&1", ok=range(1, 256))
            for options in ("--in --read-keys", "--out --register --param-sark=abc")
        ]
        for disk in disks
    )
    print(active)
    assert all("command not supported" in answer for answer in active)
    assert standby == active


def test_a_removed_host_never_reads_from_lios_dummy(scenario: Scenario, disks: list[str]) -> None:
    """Its session ends while the LUN is mapped; the monitor puts the entry back."""
    host, disk = scenario.host, disks[0]
    host.sh(
        f"yes {CODE} | tr -d '\\n' | head -c 4096 |"
        f" dd of={disk} bs=4096 count=1 iflag=fullblock oflag=direct"
    )
    reader = _READER.format(disk=disk, duration_s=HELD_S + 40)
    host.sh(
        f"systemd-run --quiet --unit={UNIT} -p StandardOutput=truncate:{LOG}"
        f" python3 -u -c {shlex.quote(reader)}"
    )
    try:
        wait_for("the first read", lambda: CODE in host.sh(f"cat {LOG}"), within_s=30)
        removal = scenario.bed.sh("n1", _SLOW_REMOVAL.format(name=NAME, held_s=HELD_S)).stdout
        # The removal has met a session, and a reader that goes on.
        assert removal.strip() == "1"
        assert not host.sh(f"cat {LOG}").endswith("end\n")
        wait_for("the reader's end", lambda: host.sh(f"cat {LOG}").endswith("end\n"), within_s=120)
        seen = set(host.sh(f"cat {LOG}").splitlines())
        print(seen)
        assert {each for each in seen if each.startswith("read ")} == {f"read {CODE}"}
    finally:
        host.sh(f"systemctl stop {UNIT}; rm -f {LOG}; true")
    read_once = f"dd if={disk} of=/dev/null bs=4096 count=1 iflag=direct"
    wait_for(
        "the host's return",
        lambda: not scenario.bed.sh(host.name, read_once, ok=range(256)).status,
        within_s=90,
    )
