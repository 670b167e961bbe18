# SPDX-License-Identifier: GPL-2.0-or-later
"""Targets of restore points: read-only LUNs for hosts that back up, on this node alone.

Such a target is no device's: no cluster resource, no ALUA group of sanctl's, no replication below.
It stands on a read-only loop device over the restore point's file, and is gone with the node's next
boot. The file may be deleted meanwhile; the kernel keeps what is exported until the export ends.

The backstore is `sanctl-point.DEVICE.POINT`, which is no device's: these have no dot in their names
(sanctl/drivers/lio.py, find_targets). Its alias is the name of its target.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from sanctl.drivers import configfs, lio, lio_acl, lio_backstore, loop, point_files
from sanctl.errors import CommandError, Problem, Refused
from sanctl.system import state_files
from sanctl.system.files import exists, is_folder, read_text, read_text_or

_ROOT = "/sys/kernel/config/target"
#: The number of an HBA that no minor has.
_BACKSTORES = f"{_ROOT}/core/iblock_1048576"
_PREFIX = "sanctl-point."
#: The kind of the notes of to whom restore points are exported (plan/device/export_access.py).
ACCESS_NOTE = "export-access"
_POINT_FILE = re.compile(rf"/{point_files.FOLDER}/[^/.]+\.[0-9a-f]{{32}}\.[0-9a-f]{{16}}$")
# As a device's (sanctl/drivers/lio_backstore.py), but no copy on offload: nothing may be written.
_ATTRIBUTES = (("emulate_pr", "0"), ("emulate_3pc", "0"), ("emulate_fua_write", "0"))


class Export(NamedTuple):
    """An exported restore point.

    Attributes:
        device: the name of its device.
        point: its name.
        iqn: the target's name.
        portals: where, as `address:port`.
        initiators: the initiators that may log in.
        file: the restore point's file; empty: not known, as the export is half made.
    """

    device: str
    point: str
    iqn: str
    portals: tuple[str, ...]
    initiators: tuple[str, ...]
    file: str


class NewExport(NamedTuple):
    """What is to be exported.

    Attributes:
        device: the name of its device.
        point: its name.
        file: the restore point's file on this node.
        iqn: the target's name.
        serial: 32 hex digits, the unit serial; no device and no other restore point has it.
        node_id: the TPG tag: this node's id (1-32).
        portals: this node's portals as `address:port`.
        logins: the initiators that may log in; None: without CHAP.
    """

    device: str
    point: str
    file: str
    iqn: str
    serial: str
    node_id: int
    portals: tuple[str, ...]
    logins: Mapping[str, lio_acl.Chap | None]


def listed() -> list[Export]:
    """Return the exports of this node, by device and restore point; half made ones, too."""
    found = []
    for entry in configfs.folders(_BACKSTORES):
        device, dot, point = entry.removeprefix(_PREFIX).partition(".")
        if entry.startswith(_PREFIX) and dot:
            target = _target_of(f"{_BACKSTORES}/{entry}")
            tpgs = lio.tpgs([target] if target else [])
            portals = tuple(each for tpg in tpgs for each in configfs.folders(f"{tpg}/np"))
            iqns = tuple(each for tpg in tpgs for each in _acls(tpg))
            file = loop.file_below(_loop_device(f"{_BACKSTORES}/{entry}"))
            found.append(Export(device, point, os.path.basename(target), portals, iqns, file))
    return found


def create(wanted: NewExport, choose_port_id: Callable[[Collection[int]], int]) -> None:
    """Export a restore point; where it is exported already, to these initiators from now on.

    Args:
        wanted: what is to be exported.
        choose_port_id: returns a relative target port id, given those that are taken.

    Raises:
        Refused: what is exported under that name is another restore point, which had it before.
        CommandError: the kernel refused a step. What was made stays; `remove` ends it.
        OSError: the kernel refused a folder, or the file cannot be read; the same.
    """
    backstore = _create_backstore(wanted)
    tpg = f"{_ROOT}/iscsi/{wanted.iqn}/tpgt_{wanted.node_id}"
    os.makedirs(tpg, exist_ok=True)
    if read_text(f"{tpg}/enable").strip() != "1":
        for attribute, value in (
            ("authentication", "0"),
            ("generate_node_acls", "0"),
            ("demo_mode_write_protect", "1"),
            ("demo_mode_discovery", "0"),
        ):
            configfs.set_value(f"{tpg}/attrib/{attribute}", value)
        for path in (f"{tpg}/rtpi", f"{tpg}/attrib/rtpi"):
            if exists(path):
                # The kernel's own choice could be the number of a device's port on this node.
                configfs.set_value(path, str(choose_port_id(set(_port_ids(but=tpg)))))
                break
    os.makedirs(f"{tpg}/lun/lun_0", exist_ok=True)
    configfs.link(backstore, f"{tpg}/lun/lun_0/{os.path.basename(backstore)}")
    _keep_out(tpg, [each for each in _acls(tpg) if each not in wanted.logins])
    with_chap = [each for each, chap in wanted.logins.items() if chap]
    for initiator in lio_acl.without_chap_first(wanted.logins, with_chap):
        lio_acl.allow(tpg, initiator, wanted.logins[initiator])
    lio_acl.let_others_in(tpg, with_chap)
    for portal in wanted.portals:
        lio.make_portal(f"{tpg}/np/{portal}")
    configfs.set_value(f"{tpg}/enable", "1")


def access_note(device: str, point: str) -> state_files.StateFile:
    """Return the note of to whom a restore point is exported here."""
    return state_files.of_node(f"{ACCESS_NOTE}.{device}.{point}")


def access(iqn: str) -> frozenset[str]:
    """Return the entries of an export's access list, as text (sanctl/model/access.py)."""
    return frozenset(map(lio_acl.read_word, _acls_of(iqn)))


def has_credentials(iqn: str, logins: Mapping[str, lio_acl.Chap | None]) -> bool:
    """Whether the entries of initiators with CHAP ask for just these secrets."""
    return all(
        (chap := logins.get(os.path.basename(acl))) is None or lio_acl.has_credentials(acl, chap)
        for acl in _acls_of(iqn)
    )


def asks_everyone(iqn: str) -> bool:
    """Whether a TPG of an export asks those to authenticate, too, whose own entry does not.

    A process was killed while it made an entry, as of a device's target (lio.py).
    """
    return any(
        read_text_or(f"{tpg}/attrib/authentication", "0").strip() != "0"
        for tpg in lio.tpgs([f"{_ROOT}/iscsi/{iqn}"] if iqn else [])
    )


def set_logins(iqn: str, logins: Mapping[str, lio_acl.Chap | None]) -> list[str]:
    """Make the access list of an export exactly these initiators: first remove, then add.

    One that the kernel refuses has no entry any more: it would get in as it did before.

    Returns:
        What the kernel refused, as text.

    Raises:
        CommandError, OSError: the kernel refused to take an entry away.
    """
    refused = []
    with_chap = [each for each, chap in logins.items() if chap]
    for tpg in lio.tpgs([f"{_ROOT}/iscsi/{iqn}"] if iqn else []):
        _keep_out(tpg, [each for each in _acls(tpg) if each not in logins])
        for initiator in lio_acl.without_chap_first(logins, with_chap):
            try:
                lio_acl.allow(tpg, initiator, logins[initiator])
            except (CommandError, OSError) as error:
                refused.append(f"{initiator}: {error}")
                _keep_out(tpg, [each for each in _acls(tpg) if each == initiator])
        lio_acl.let_others_in(tpg, with_chap)
    return refused


def _keep_out(tpg: str, initiators: Collection[str]) -> None:
    for initiator in initiators:
        lio_acl.end_sessions(f"{tpg}/acls/{initiator}")
        lio_acl.remove(f"{tpg}/acls/{initiator}")


def remove(device: str, point: str) -> bool:
    """End an export, whatever parts of it exist; return whether there was one.

    Raises:
        CommandError: the kernel refused a step; a new call goes on.
        OSError: the same.
    """
    backstore = f"{_BACKSTORES}/{_PREFIX}{device}.{point}"
    if not is_folder(backstore):
        return False
    target = _target_of(backstore)
    for tpg in lio.tpgs([target] if target else []):
        if read_text(f"{tpg}/enable").strip() == "1":
            configfs.write(f"{tpg}/enable", "0")
        lio.remove_tpg(tpg)
    if target:
        os.rmdir(target)
    # First, while the backstore names it: the kernel detaches it when the backstore lets it go.
    file = loop.file_below(_loop_device(backstore))
    # Of a half-made one the loop device may be gone, and its number be that of a replica's by now.
    if _POINT_FILE.search(file):
        loop.detach(file)
    os.rmdir(backstore)
    access_note(device, point).remove()
    return True


def remove_below(folder: str) -> list[Export]:
    """End the exports of restore points whose files are below a folder; return them.

    With an empty folder all, also half made ones. A loop device over a restore point's file that an
    interrupted command has left goes, too, unless somebody uses it.

    Raises:
        CommandError, OSError: the kernel refused a step.
    """
    ended = [each for each in listed() if not folder or each.file.startswith(f"{folder}/")]
    for each in ended:
        remove(each.device, each.point)
    for file in loop.backing_files():
        if _POINT_FILE.search(file) and file.startswith(f"{folder}/"):
            loop.detach(file)
    return ended


def _create_backstore(wanted: NewExport) -> str:
    backstore = f"{_BACKSTORES}/{_PREFIX}{wanted.device}.{wanted.point}"
    _end_earlier(backstore, wanted)
    os.makedirs(backstore, exist_ok=True)
    if read_text(f"{backstore}/enable").strip() != "1":
        block_device = loop.attach(
            wanted.file, block_bytes=loop.HOST_BLOCK_BYTES, is_read_only=True
        )
        # First: by these `remove` finds the target and the loop device.
        configfs.write(f"{backstore}/alias", wanted.iqn)
        configfs.write(f"{backstore}/udev_path", block_device)
        configfs.write(f"{backstore}/control", f"udev_path={block_device},readonly=1")
        configfs.write(f"{backstore}/enable", "1")
    if read_text(f"{backstore}/wwn/vpd_unit_serial").rpartition(": ")[2].strip() != wanted.serial:
        configfs.write(f"{backstore}/wwn/vendor_id", lio_backstore.VENDOR)
        configfs.write(f"{backstore}/wwn/product_id", wanted.serial[:8])
        configfs.write(f"{backstore}/wwn/revision", "1")
        for attribute, value in _ATTRIBUTES:
            configfs.set_value(f"{backstore}/attrib/{attribute}", value)
        # Last: it says that all of these are set, also after a process died among them.
        configfs.write(f"{backstore}/wwn/vpd_unit_serial", wanted.serial)
    return backstore


def _end_earlier(backstore: str, wanted: NewExport) -> None:
    """Remove what is left of an export of another restore point that had the name.

    A restore point may be deleted while it is exported, and another one get its name. The backstore
    has the name alone: hosts would read the earlier one's data as the later one's.

    Raises:
        Refused: a host may be reading the earlier one.
    """
    if not is_folder(backstore):
        return
    file = loop.file_below(_loop_device(backstore))
    is_enabled = read_text(f"{backstore}/enable").strip() == "1"
    if file == wanted.file or not (file or is_enabled):
        return
    target = _target_of(backstore)
    if any(lio.has_lun(tpg) for tpg in lio.tpgs([target] if target else [])):
        name = f"{wanted.device}@{wanted.point}"
        raise Refused(
            Problem(
                "SAN-EXP-008",
                f"this node exports an earlier restore point of the name {name}: "
                f"{file or 'its file is not known'}",
                f"have its hosts log out, 'sanctl snapshot unexport {name}', and export again",
            )
        )
    remove(wanted.device, wanted.point)


def _loop_device(backstore: str) -> str:
    return read_text_or(f"{backstore}/udev_path", "").strip()


def _target_of(backstore: str) -> str:
    """Return the folder of the target over a backstore, which has its name; empty: none."""
    iqn = read_text_or(f"{backstore}/alias", "").strip()
    target = f"{_ROOT}/iscsi/{iqn}"
    return target if iqn and is_folder(target) else ""


def _acls(tpg: str) -> list[str]:
    return configfs.folders(f"{tpg}/acls")


def _acls_of(iqn: str) -> list[str]:
    """Return the folders of the entries of an export; none of one that is half made."""
    tpgs = lio.tpgs([f"{_ROOT}/iscsi/{iqn}"]) if iqn else []
    return [f"{tpg}/acls/{each}" for tpg in tpgs for each in _acls(tpg)]


def _port_ids(*, but: str) -> Iterator[int]:
    for iqn in configfs.folders(f"{_ROOT}/iscsi"):
        for tpg in lio.tpgs([f"{_ROOT}/iscsi/{iqn}"]):
            for path in (f"{tpg}/rtpi", f"{tpg}/attrib/rtpi"):
                text = read_text_or(path, "").strip()
                if tpg != but and text.isdecimal():
                    yield int(text)
