# SPDX-License-Identifier: GPL-2.0-or-later
"""The files, packages and units of a node."""

from __future__ import annotations

import io
import tarfile

import pytest

from sanctl.lab.machines import guest_files
from sanctl.lab.machines.guest_files import GuestFile
from sanctl.lab.machines.spec import LabSpec


def identity(name: str, spec: LabSpec) -> dict[str, GuestFile]:
    return guest_files.identity_files(
        spec,
        spec.node(name),
        machine_id=f"id of {name}",
        host_key=f"host key of {name}",
        host_public_key=f"public host key of {name}",
        login_key="login key",
    )


def test_what_must_be_unique_differs_and_is_secret_where_it_has_to_be() -> None:
    spec = LabSpec()
    one, two = identity("n1", spec), identity("n2", spec)
    for path in (
        "/etc/hostname",
        "/etc/machine-id",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/ssh/ssh_host_ed25519_key.pub",
        "/etc/iscsi/initiatorname.iscsi",
    ):
        assert one[path].content != two[path].content
    assert one["/etc/ssh/ssh_host_ed25519_key"].mode == 0o600
    assert one["/etc/hosts"] == two["/etc/hosts"]


def test_initiator_name() -> None:
    file = identity("i1", LabSpec())["/etc/iscsi/initiatorname.iscsi"]
    assert file.content == b"InitiatorName=iqn.2026-11.net.example:i1\n"


def test_only_storage_nodes_mount_data_disks() -> None:
    spec = LabSpec(disks=2)
    fstab = identity("n1", spec)["/etc/fstab"].content.decode()
    assert "/dev/mapper/lab-disk1 /srv/sanctl/main ext4 defaults,nofail" in fstab
    assert "/dev/mapper/lab-disk2 /srv/sanctl/disk2" in fstab
    for name in ("n3", "i1"):
        assert b"sanctl" not in identity(name, spec)["/etc/fstab"].content


def test_a_node_makes_xfs_on_a_blank_disk_and_nothing_on_one_that_came_with_ext4() -> None:
    lines = identity("n1", LabSpec(filesystem="xfs"))["/etc/fstab"].content.decode().splitlines()
    disk = next(line for line in lines if "/srv/sanctl/main" in line)
    assert disk.split()[2] == "xfs"
    assert "x-systemd.makefs" in disk.split()[3].split(",")
    assert b"makefs" not in identity("n1", LabSpec())["/etc/fstab"].content


def test_labs_without_data_disks_mount_none() -> None:
    assert guest_files.data_mounts(LabSpec(disks=0)) == ()


def test_hosts_file_lists_all_nodes_by_their_heartbeat_address() -> None:
    assert guest_files.hosts_file(LabSpec()).splitlines() == [
        "127.0.0.1 localhost",
        "10.77.3.1 n1",
        "10.77.3.2 n2",
        "10.77.3.3 n3",
        "10.77.3.101 i1",
    ]


def test_nics_get_their_names_and_addresses() -> None:
    assert guest_files.link_commands(LabSpec().node("i1")).splitlines() == [
        "link set vec0 name iscsi0",
        "addr add 10.77.1.101/24 broadcast + dev iscsi0",
        "link set iscsi0 up",
        "link set vec1 name hb0",
        "addr add 10.77.3.101/24 broadcast + dev hb0",
        "link set hb0 up",
    ]


def test_config_disk_holds_everything_with_its_modes_and_folders() -> None:
    packed = guest_files.config_disk(
        {"/root/.ssh/authorized_keys": GuestFile(b"key", 0o600)}, "links", b"seed"
    )
    assert len(packed) % 512 == 0  # a block device's size
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        modes = {member.name: member.mode for member in archive}
        seed = archive.extractfile("seed")
        assert seed is not None
        assert seed.read() == b"seed"
    assert modes == {
        "identity": 0o755,
        "identity/root": 0o700,
        "identity/root/.ssh": 0o700,
        "identity/root/.ssh/authorized_keys": 0o600,
        "links": 0o644,
        "seed": 0o600,
    }


@pytest.mark.parametrize(
    ("release", "package"), [("bookworm", "fence-agents"), ("trixie", "fence-agents-ipmilan")]
)
def test_each_release_has_the_package_with_fence_ipmilan(release: str, package: str) -> None:
    assert package in guest_files.packages(release)


def test_no_unit_is_both_masked_and_left_for_the_rollout_to_enable() -> None:
    assert not set(guest_files.masked_units()) & set(guest_files.disabled_units()) - {
        "getty@tty1.service"
    }
