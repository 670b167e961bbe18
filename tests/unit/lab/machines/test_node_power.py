# SPDX-License-Identifier: GPL-2.0-or-later
"""A node's kernel arguments, the files of a laboratory, its bridges and links."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.lab.machines import lab_state, network, node_power
from sanctl.lab.machines.lab_state import Lab
from sanctl.lab.machines.spec import LabSpec, Network


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(lab_state, "STATE_ROOT", tmp_path / "state")
    monkeypatch.setattr(lab_state, "RUN_ROOT", tmp_path / "run")
    return Lab(
        spec=LabSpec(name="unit", memory_mib=512, disks=2),
        image=Path("/image"),
        kernel=Path("/kernel"),
    )


def test_a_storage_node_has_its_disks_and_three_nics(lab: Lab) -> None:
    arguments = node_power.kernel_arguments(lab, lab.spec.node("n1"))
    assert "mem=512M" in arguments
    assert "ubd0=/run/node/root.cow,/run/image/root.img" in arguments
    assert "ubd2=/run/node/disk2.raw" in arguments
    assert [argument.split(":")[0] for argument in arguments if argument.startswith("vec")] == [
        "vec0",
        "vec1",
        "vec2",
    ]
    assert "vec1:transport=tap,ifname=n1-sync,mac=02:77:00:00:02:01,depth=128,gro=1" in arguments


def test_only_storage_nodes_have_data_disks(lab: Lab) -> None:
    for name in ("n3", "i1"):
        arguments = node_power.kernel_arguments(lab, lab.spec.node(name))
        assert not [argument for argument in arguments if "disk1.raw" in argument]


def test_the_shared_image_is_never_written_to(lab: Lab) -> None:
    arguments = node_power.kernel_arguments(lab, lab.spec.node("n1"))
    for argument in arguments:
        if argument.startswith("ubd") and "/run/kernel" in argument:
            assert argument.partition("=")[0].endswith("rc")
        if "/run/image" in argument:
            assert argument.startswith("ubd0=/run/node/root.cow,")


def test_a_node_that_never_started_is_off(lab: Lab) -> None:
    lab.node_directory(lab.spec.node("n1")).mkdir(parents=True)
    assert node_power.power(lab, lab.spec.node("n1")) is node_power.Power.OFF


def test_a_lab_is_found_again_as_it_was_kept(lab: Lab) -> None:
    lab.directory.mkdir(parents=True)
    lab_state.save(lab)
    assert lab_state.names() == ["unit"]
    assert lab_state.load("unit") == lab
    assert lab_state.find("another") is None


def test_ssh_knows_every_node_and_trusts_only_the_keys_it_was_given(lab: Lab) -> None:
    lab.directory.mkdir(parents=True)
    lab_state.write_ssh_config(lab, {node.name: f"key-{node.name}" for node in lab.machines})
    config = lab.ssh_config.read_text()
    for line in ("Host n1 10.77.3.1", "  HostKeyAlias i1", "  StrictHostKeyChecking yes"):
        assert line in config.splitlines()
    known = (lab.directory / "known_hosts").read_text().splitlines()
    assert known[0] == "n1,10.77.3.1 key-n1"
    assert lab.ssh_config.stat().st_mode & 0o777 == 0o600


def test_commands_run_inside_the_labs_network(lab: Lab) -> None:
    argv = lab.ssh_argv(lab.spec.node("n1"), "uname", "-r")
    assert argv[:2] == ("nsenter", "--net=/run/netns/sanctl-unit")
    assert argv[-3:] == ("n1", "uname", "-r")


def test_networks(lab: Lab) -> None:
    lines = network.bridge_commands(LabSpec(nodes=1, initiators=1)).splitlines()
    assert "link add iscsi type bridge mcast_snooping 0" in lines
    assert "addr add 10.77.3.254/24 dev hb" in lines
    assert "addr add 10.77.3.201/32 dev hb" in lines
    assert "link set n1-sync master sync up" in lines
    assert "link set i1-iscsi master iscsi up" in lines
    assert not [line for line in lines if "i1-sync" in line]


def test_worsening_a_link_and_making_it_good_again() -> None:
    worse = network.impair_argv(Network.SYNC, delay_ms=50, loss_pct=2.5)
    assert " ".join(worse) == "tc qdisc replace dev sync0 root netem delay 50ms loss 2.5%"
    good = network.impair_argv(Network.SYNC, delay_ms=0, loss_pct=0)
    assert "netem" not in good
