# SPDX-License-Identifier: GPL-2.0-or-later
"""The stock stack's configuration: order of its group, constraints, intervals, files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sanctl.lab.bench import peer_config
from sanctl.lab.bench.peer_config import StockDevice
from sanctl.lab.machines.spec import LabSpec

HOST = "iqn.2026-11.net.example:i1"
DEVICES = [StockDevice(number=0), StockDevice(number=1)]
NODES = LabSpec().cluster_nodes[:2]


def cib() -> ET.Element:
    resources, constraints = peer_config.cib_elements(DEVICES, HOST, ["n3"])
    return ET.fromstring(f"<cib>{''.join(resources)}{''.join(constraints)}</cib>")


def test_the_port_is_closed_before_the_address_and_opened_after_the_logical_unit() -> None:
    members = cib().findall("group[@id='bench-peers0']/primitive")
    assert [member.get("type") for member in members] == [
        "portblock",
        "IPaddr2",
        "iSCSITarget",
        "iSCSILogicalUnit",
        "portblock",
    ]
    actions = [
        pair.get("value")
        for member in (members[0], members[-1])
        for pair in member.findall("instance_attributes/nvpair[@name='action']")
    ]
    assert actions == ["block", "unblock"]
    assert members[-1].get("id") == DEVICES[0].last_member


def test_the_group_is_where_drbd_is_promoted_and_after_it() -> None:
    found = cib()
    colocation = found.find("rsc_colocation[@rsc='bench-peers1']")
    order = found.find("rsc_order[@then='bench-peers1']")
    assert colocation is not None
    assert order is not None
    assert (colocation.get("with-rsc"), colocation.get("with-rsc-role")) == (
        DEVICES[1].clone,
        "Promoted",
    )
    assert (order.get("first"), order.get("first-action")) == (DEVICES[1].clone, "promote")
    assert order.get("kind") == "Mandatory"


def test_drbd_has_notifications_and_a_monitor_of_each_role() -> None:
    clone = cib().find(f"clone[@id='{DEVICES[0].clone}']")
    assert clone is not None
    meta = {pair.get("name"): pair.get("value") for pair in clone.findall("meta_attributes/nvpair")}
    assert (meta["promotable"], meta["notify"], meta["clone-max"]) == ("true", "true", "2")
    monitors = clone.findall("primitive/operations/op[@name='monitor']")
    assert {(op.get("interval"), op.get("role")) for op in monitors} == {
        ("10s", "Promoted"),
        ("20s", "Unpromoted"),
    }


def test_nodes_without_a_replica_run_nothing_of_it() -> None:
    banned = {each.get("rsc") for each in cib().findall("rsc_location[@node='n3']")}
    assert banned == {name for device in DEVICES for name in (device.clone, device.name)}


def test_every_id_is_there_once() -> None:
    ids = [element.get("id") for element in cib().iter() if element.get("id")]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("what", ["minor", "loop", "address", "iqn", "backing_file", "name"])
def test_devices_share_nothing(what: str) -> None:
    assert getattr(DEVICES[0], what) != getattr(DEVICES[1], what)


def test_drbd_fences_by_its_own_handlers() -> None:
    text = peer_config.resource_file(DEVICES[0], NODES)
    assert "fencing resource-and-stonith;" in text
    assert 'fence-peer "/usr/lib/drbd/crm-fence-peer.sh --timeout 15";' in text
    assert 'after-resync-target "/usr/lib/drbd/crm-unfence-peer.sh";' in text
    assert text.count("  on n") == 2
    assert text.count("{") == text.count("}")


def test_the_loop_devices_are_there_before_pacemaker() -> None:
    text = peer_config.loop_unit(DEVICES)
    assert "Before=pacemaker.service" in text
    assert all(f"{each.loop} {each.backing_file}" in text for each in DEVICES)


def iptables(folder: Path, *arguments: str) -> str:
    """Run the stand-in for iptables beside a tc that shows one filter and notes its arguments."""
    (folder / "tc").write_text(
        f'#!/bin/sh\necho "$*" >>{folder}/called\n[ "$2" != show ] || echo "  dst_ip 10.77.1.151"\n'
    )
    (folder / "tc").chmod(0o755)
    return subprocess.run(
        ["sh", "-c", peer_config.IPTABLES_SCRIPT, "iptables", *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": f"{folder}:/usr/bin:/bin"},
    ).stdout


def test_portblock_finds_a_closed_port_in_the_list(tmp_path: Path) -> None:
    shown = iptables(tmp_path, "-w", "-n", "-L", "INPUT")
    # The pattern of portblock, for the address that is closed and for another one.
    pattern = r"^DROP\s+(tcp|6)\s+--\s+0\.0\.0\.0/0\s+{}\s+multiport\s+dports\s+3260$"
    assert re.search(pattern.format(DEVICES[0].address), shown, re.MULTILINE)
    assert not re.search(pattern.format(DEVICES[1].address), shown, re.MULTILINE)


@pytest.mark.parametrize(("option", "verb"), [("-I", "add"), ("-D", "del")])
def test_portblock_closes_and_opens_by_tc(tmp_path: Path, option: str, verb: str) -> None:
    rule = f"-p tcp -d {DEVICES[1].address} -m multiport --dports 3260 -j DROP"
    iptables(tmp_path, "-w", option, "INPUT", *rule.split())
    called = (tmp_path / "called").read_text().splitlines()[-1]
    assert called.startswith(f"filter {verb} dev iscsi0 ingress pref 152")
    assert ("dst_ip 10.77.1.152 dst_port 3260 action drop" in called) == (option == "-I")
