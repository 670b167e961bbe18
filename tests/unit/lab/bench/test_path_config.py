# SPDX-License-Identifier: GPL-2.0-or-later
"""The layers made by hand: DRBD as sanctl has it where it matters, scripts, nothing shared."""

from __future__ import annotations

import subprocess

import pytest

from sanctl.lab.bench import path_config, peer_config
from sanctl.lab.bench.path_config import BY_HAND_EXPORT, LIO_EXPORT
from sanctl.lab.bench.peer_config import StockDevice
from sanctl.lab.machines.spec import LabSpec, Network
from sanctl.lab.measure import path_figures
from sanctl.model.sync_policy import SyncPolicy
from sanctl.render.drbd import BackingDevices, ReplicaAddress, port_of, render_resource

HOST = "iqn.2026-11.net.example:i1"
NODES = LabSpec().cluster_nodes[:2]


def ours() -> str:
    return render_resource(
        name="vm1",
        minor=1,
        size_bytes=path_config.SIZE_MIB << 20,
        secret="s",
        replicas=tuple(
            ReplicaAddress(node.name, node.id, node.address(Network.SYNC)) for node in NODES
        ),
        backing=BackingDevices("/dev/loop0", "/dev/loop1"),
        handlers="/usr/lib/sanctl/handlers",
        generation=8,
        sync=SyncPolicy(),
        link_bytes_s=None,
    )


def test_drbd_by_hand_has_sanctls_buffers_and_timers() -> None:
    by_hand = path_figures.drbd_options(path_config.resource_file(NODES))
    assert len(by_hand) == 9
    assert by_hand.items() <= path_figures.drbd_options(ours()).items()


def test_drbds_metadata_is_outside_of_what_fio_uses() -> None:
    assert "meta-disk internal;" in path_config.resource_file(NODES)
    # 32 KiB of bitmap for each GiB, and an activity log of 32 KiB: less than a MiB.
    assert path_config.REGION_MIB < path_config.SIZE_MIB - 1


def test_nothing_is_shared_with_devices_of_sanctl_or_of_another_bench() -> None:
    stock = StockDevice(number=19)
    assert stock.minor < path_config.MINOR
    assert f":{path_config.MINOR + 7000};" in path_config.resource_file(NODES)
    assert f":{path_config.MINOR + 7000};" not in peer_config.resource_file(stock, NODES)
    assert port_of(path_config.MINOR) != path_config.MINOR + 7000
    assert LIO_EXPORT.iqn != BY_HAND_EXPORT.iqn
    assert LIO_EXPORT.backstore != BY_HAND_EXPORT.backstore


@pytest.mark.parametrize(
    "script",
    [
        path_config.attach_script((0, 1)),
        path_config.detach_script(),
        path_config.remains_script(),
        *(path_config.export_script(each, "10.77.1.1", HOST) for each in (LIO_EXPORT,)),
        *(path_config.unexport_script(each) for each in (LIO_EXPORT, BY_HAND_EXPORT)),
    ],
)
def test_scripts_are_ones(script: str) -> None:
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)


def test_all_that_is_made_is_looked_for_afterwards() -> None:
    remains = path_config.remains_script()
    for made in (
        path_config.FOLDER,
        path_config.RESOURCE_FILE,
        path_config.RESOURCE,
        *(
            each
            for export in (LIO_EXPORT, BY_HAND_EXPORT)
            for each in (export.target, export.backstore)
        ),
    ):
        assert made in remains


def test_a_target_is_enabled_last() -> None:
    lines = path_config.export_script(LIO_EXPORT, "10.77.1.1", HOST).splitlines()
    assert lines[-1] == "echo 1 >$tpg/enable"
    assert f"acl={LIO_EXPORT.target}/tpgt_1/acls/{HOST}" in lines[1]
