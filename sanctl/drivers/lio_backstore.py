# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's backstore in LIO: the block device below, and what hosts are told of the disk.

Identity (vendor, serial number), limits of UNMAP and of zeros, whether UNMAP is offered. The
target above, with portals and access list: lio.py.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from sanctl.drivers import configfs
from sanctl.system.files import is_folder, read_text, read_text_or

if TYPE_CHECKING:
    from sanctl.model.reservation import Reservations

_ROOT = "/sys/kernel/config/target"
#: SCSI vendor of all disks. Rules of udev and multipath on the hosts name it.
VENDOR = "SANCTL"
_DISCARD_BLOCKS_MAX = 8192  # 4 MiB per UNMAP of 512-byte blocks, the same on every path
# 1 MiB. Zeros are written on each disk (docs/adr/0040), by LIO within the thread that answers a
# host's pings (target_core_iblock.c, iblock_execute_zero_out), and DRBD gives a standby up that
# takes longer for one request than ko-count. LIO's own limit is 4 GiB.
_ZEROS_BLOCKS_MAX = 2048
# 1 MiB. LIO would name what the device below takes at most (target_core_device.c,
# target_configure_device): 1.25 MiB of a loop device, a size by which hosts align partitions and
# stripes, and another on a node whose kernel takes more.
_OPTIMAL_BLOCKS = 2048
_UNMAP = ("emulate_tpws", "emulate_tpu")


def folder(name: str, minor: int) -> str:
    """Return the configfs folder of a device's backstore."""
    return f"{_ROOT}/core/iblock_{minor}/sanctl-{name}"


def serials() -> list[str]:
    """Return the unit serial numbers of the backstores of devices, up or half made.

    Raises:
        OSError: they are not known.
    """
    core = f"{_ROOT}/core"
    return [
        read_text(f"{core}/{hba}/{entry}/wwn/vpd_unit_serial").rpartition(": ")[2].strip()
        for hba in configfs.folders(core)
        if hba.startswith("iblock_")
        for entry in configfs.folders(f"{core}/{hba}")
        if entry.startswith("sanctl-")
    ]


def create(
    name: str,
    minor: int,
    block_device: str,
    *,
    uuid: str,
    offers_unmap: bool,
    reservations: Reservations | None,
) -> str:
    """Create a device's backstore over a block device, with what hosts are told of the disk.

    Args:
        name: the device's name.
        minor: its DRBD minor.
        block_device: the path of the device below.
        uuid: 32 hex digits; unit serial, and the source of the NAA identifier.
        offers_unmap: UNMAP is reported as supported.
        reservations: None: persistent reservations are refused.

    Returns:
        Its configfs folder.

    Raises:
        CommandError: the kernel refused a step; what was done stays, and a new call goes on.
        OSError: the same.
    """
    backstore = folder(name, minor)
    os.makedirs(backstore, exist_ok=True)
    if read_text(f"{backstore}/enable").strip() != "1":
        configfs.write(f"{backstore}/control", f"udev_path={block_device}")
        configfs.write(f"{backstore}/udev_path", block_device)
        configfs.write(f"{backstore}/enable", "1")
    serial = read_text(f"{backstore}/wwn/vpd_unit_serial").rpartition(": ")[2].strip()
    if serial != uuid:
        # These first, while nothing is exported: they can only be set then.
        configfs.set_value(f"{backstore}/attrib/optimal_sectors", str(optimal_blocks(backstore)))
        configfs.write(f"{backstore}/wwn/vendor_id", VENDOR)
        # VMware distinguishes disks by the first eight characters.
        configfs.write(f"{backstore}/wwn/product_id", uuid[:8])
        configfs.write(f"{backstore}/wwn/revision", "1")
        # Last: it says that all of these are set, also after a process died among them.
        configfs.write(f"{backstore}/wwn/vpd_unit_serial", uuid)
    for attribute, value in (
        ("max_unmap_lba_count", str(_DISCARD_BLOCKS_MAX)),
        ("max_unmap_block_desc_count", "1"),
        ("unmap_granularity", "8"),
        ("unmap_granularity_alignment", "0"),
        ("unmap_zeroes_data", "0"),
        # Copies within the device. LIO looks for both ends among the LUNs of the session
        # (target_core_xcopy.c, target_xcopy_locate_se_dev_e4), and a target has one.
        ("emulate_3pc", "1"),
        # FUA: the backstore drops the bit where the device below does not support it
        # (target_core_iblock.c, iblock_execute_rw), and loop devices do not. A host that sees no
        # FUA support flushes after such a write instead.
        ("emulate_fua_write", "0"),
    ):
        configfs.set_value(f"{backstore}/attrib/{attribute}", value)
    if has_full_block_limits_page(backstore):
        configfs.set_value(f"{backstore}/attrib/max_write_same_len", str(_ZEROS_BLOCKS_MAX))
    if reservations is None:
        configfs.set_value(f"{backstore}/attrib/emulate_pr", "0")
    else:
        from sanctl.drivers import lio_reservations  # noqa: PLC0415 - few devices have any

        # In this order: a command is taken when all of it holds.
        lio_reservations.prepare(backstore)
        lio_reservations.set_mode(backstore, is_on=True)
    offer_unmap(name, minor, on=offers_unmap)
    return backstore


def optimal_blocks(backstore: str) -> int:
    """Return the optimal transfer length that hosts are told, in blocks of 512 bytes.

    The kernel refuses more than the device below takes (target_core_configfs.c,
    optimal_sectors_store).
    """
    most = int(read_text(f"{backstore}/attrib/hw_max_sectors"))
    return min(_OPTIMAL_BLOCKS, most)


def has_full_block_limits_page(backstore: str) -> bool:
    """Whether LIO's Block Limits VPD page is long enough for Linux hosts to use it.

    A kernel that supports atomic writes ends the page before those fields where the device has
    none, at 44 bytes (target_core_spc.c, spc_emulate_evpd_b0). Linux hosts read the limits from 64
    bytes on (sd.c, sd_read_block_limits). Without the page hosts send no WRITE SAME for zeros, and
    unmap by a WRITE SAME of any length: refused, hosts would cease to unmap. Where unmap is not
    offered every kernel's page is short; a host that asks for more zeros then is refused, and
    writes them.
    """
    return read_text_or(f"{backstore}/attrib/atomic_max_len", "none").strip() != "0"


def unmap_attributes(name: str, minor: int) -> list[str]:
    """Return the paths of the attributes that offer UNMAP to hosts."""
    return [f"{folder(name, minor)}/attrib/{each}" for each in _UNMAP]


def is_unmap_offered(name: str, minor: int) -> bool | None:
    """Whether the target offers UNMAP; None: half, as a process died between two attributes."""
    values = {read_text(path).strip() == "1" for path in unmap_attributes(name, minor)}
    return values.pop() if len(values) == 1 else None


def offer_unmap(name: str, minor: int, *, on: bool) -> None:
    """Offer UNMAP to hosts, or withdraw the offer; also while hosts are logged in.

    A host that has not noticed the withdrawal is refused, and ceases to unmap (drivers/scsi/sd.c).

    Raises:
        CommandError: the kernel refused.
    """
    for path in unmap_attributes(name, minor):
        configfs.set_value(path, "1" if on else "0")


def remove(name: str, minor: int) -> None:
    """Remove the backstore with its ALUA groups, whatever parts of them exist."""
    backstore = folder(name, minor)
    for group in configfs.folders(f"{backstore}/alua"):
        if group != "default_tg_pt_gp":
            os.rmdir(f"{backstore}/alua/{group}")
    if is_folder(backstore):
        os.rmdir(backstore)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(backstore))
