# SPDX-License-Identifier: GPL-2.0-or-later
"""Configuration of the layers that `sanctl bench path` makes by hand: loop, DRBD, LIO. Pure.

As people make them without a cluster: one DRBD resource of two nodes, and LIO's targets with the
kernel's defaults, as targetcli makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sanctl.lab.bench import drbd_by_hand
from sanctl.lab.machines.spec import NodeSpec

NAME = "bench-path"
#: The folder of the backing files: on the pool's filesystem, as those of sanctl's devices.
FOLDER = f"/srv/sanctl/main/{NAME}"
SIZE_MIB = 96
#: What fio reads and writes; DRBD's internal metadata is behind it.
REGION_MIB = 64
RESOURCE = f"{NAME}-drbd"
RESOURCE_FILE = f"/etc/drbd.d/{RESOURCE}.res"
MINOR = 750
_PORT = 7750
_CONFIGFS = "/sys/kernel/config/target"
# Above what sanctl's targets and the kernel choose: no port id may be there twice on a node.
_FIRST_PORT_ID = 65000

#: What the layers share, and what differs of necessity.
CONDITIONS = (
    "raw disk: fio on the node, on a loop device over a preallocated file of the pool's filesystem "
    "(direct I/O); the other layers stand on such a device, so that what they add is seen",
    "LIO: that loop device, exported by the kernel's defaults to a host with one session",
    "DRBD and LIO by hand: such a loop device on two nodes, DRBD with metadata in it (internal), "
    "protocol C, sanctl's buffers and timers, LIO on the Primary as before, no cluster",
    "sanctl: a device of two replicas with the default policy; device-mapper twice between LIO and "
    "DRBD (the gate), metadata in a file of its own, and at the host dm-multipath over two "
    "sessions, where the hand-made ones have the disk of their session",
    "same nodes, kernels, network and host; every block was written before; sanctl's agents run "
    "during all of it",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A block device of a node, exported by LIO."""

    number: int
    name: str
    device: str

    @property
    def iqn(self) -> str:
        """The target's name."""
        return f"iqn.2026-11.net.example:{self.name}"

    @property
    def backstore(self) -> str:
        """The backstore's folder in configfs."""
        return f"{_CONFIGFS}/core/iblock_{MINOR + self.number}/{self.name}"

    @property
    def target(self) -> str:
        """The target's folder in configfs."""
        return f"{_CONFIGFS}/iscsi/{self.iqn}"


def loop_device(number: int) -> str:
    """Return the loop device of a file."""
    return f"/dev/loop{MINOR + number}"


def backing_file(number: int) -> str:
    """Return the file below a loop device."""
    return f"{FOLDER}/{number}"


RAW_LOOP, DRBD_LOOP = loop_device(0), loop_device(1)
LIO_EXPORT = Export(number=0, name=f"{NAME}-lio", device=RAW_LOOP)
BY_HAND_EXPORT = Export(number=1, name=RESOURCE, device=f"/dev/drbd{MINOR}")


def resource_file(nodes: Sequence[NodeSpec]) -> str:
    """Return the DRBD resource file.

    Without fencing: its handlers have nothing to ask without a cluster, and no part in a write.
    """
    return drbd_by_hand.resource_file(RESOURCE, nodes, minor=MINOR, disk=DRBD_LOOP, port=_PORT)


def attach_script(numbers: Sequence[int]) -> str:
    """Return what makes the files of a node and attaches loop devices to them."""
    return f"mkdir -p {FOLDER}\n" + "".join(
        f"fallocate -l {SIZE_MIB}M {backing_file(number)}\n"
        f"losetup --direct-io=on {loop_device(number)} {backing_file(number)}\n"
        f"[ $(cat /sys/block/loop{MINOR + number}/loop/dio) = 1 ]\n"
        for number in numbers
    )


def detach_script() -> str:
    """Return what removes a node's DRBD resource, loop devices and files, as far as there are."""
    return (
        f"drbdsetup down {RESOURCE} 2>/dev/null\n"
        + "".join(
            f"losetup {loop_device(number)} >/dev/null 2>&1 && losetup -d {loop_device(number)}\n"
            for number in (0, 1)
        )
        + f"rm -rf {FOLDER} {RESOURCE_FILE}\n"
    )


def export_script(export: Export, portal: str, host_iqn: str) -> str:
    """Return what exports a device to a host, with the kernel's defaults."""
    tpg = f"{export.target}/tpgt_1"
    return f"""\
modprobe -aq target_core_iblock iscsi_target_mod
backstore={export.backstore} tpg={tpg} acl={tpg}/acls/{host_iqn}
mkdir -p $backstore
echo udev_path={export.device} >$backstore/control
echo {export.device} >$backstore/udev_path
echo 1 >$backstore/enable
echo {export.name} >$backstore/wwn/vpd_unit_serial
mkdir -p $tpg
[ ! -e $tpg/rtpi ] || echo {_FIRST_PORT_ID + export.number} >$tpg/rtpi
echo 0 >$tpg/attrib/authentication
mkdir -p $tpg/lun/lun_0
ln -s $backstore $tpg/lun/lun_0/{export.name}
mkdir -p $acl/lun_0
ln -s $tpg/lun/lun_0 $acl/lun_0/{export.name}
mkdir -p $tpg/np/{portal}:3260
echo 1 >$tpg/enable
"""


def unexport_script(export: Export) -> str:
    """Return what removes a target and its backstore, as far as there are."""
    return f"""\
cd {export.target}/tpgt_1 2>/dev/null && {{
    echo 0 >enable
    rm -f acls/*/lun_0/{export.name}
    rmdir acls/*/lun_0 acls/* np/*
    rm -f lun/lun_0/{export.name}
    rmdir lun/lun_0
    cd /
    rmdir {export.target}/tpgt_1 {export.target}
}} 2>/dev/null
[ ! -d {export.backstore} ] || rmdir {export.backstore} $(dirname {export.backstore})
"""


def remains_script() -> str:
    """Return what prints all that is left on a node, a line for each; nothing: all is gone."""
    paths = [
        path
        for export in (LIO_EXPORT, BY_HAND_EXPORT)
        for path in (export.target, export.backstore)
    ]
    return (
        f"for path in {FOLDER} {RESOURCE_FILE} {' '.join(paths)}; do"
        " [ ! -e $path ] || echo $path; done\n"
        f"losetup -n -O NAME,BACK-FILE | grep {FOLDER}/\n"
        f"drbdsetup events2 --now {RESOURCE} 2>/dev/null | grep -o 'resource name:.*'\n"
        "true\n"
    )
