# SPDX-License-Identifier: GPL-2.0-or-later
"""Puts other reservations in force in a target that is exported: its sessions end meanwhile."""

from __future__ import annotations

import os

from sanctl.drivers import configfs, lio, lio_acl, lio_backstore, lio_reservations
from sanctl.errors import CommandError, Problem
from sanctl.model.reservation import Reservations
from sanctl.system.files import exists, is_link, read_text_or


def reload(name: str, minor: int, wanted: Reservations) -> None:
    """Have just these reservations in force: what is registered goes with the LUN.

    The TPG is disabled meanwhile: hosts' sessions end, and no host meets LIO's dummy LUN 0, or the
    LUN before it is in its ALUA group. A call that dies half way leaves the TPG disabled; another
    one does the whole again. What the kernel made of it is read before that ends: no host's command
    changes it, and none waits, for which the kernel may spin under the lock of who is the holder.

    Raises:
        CommandError: the kernel refused a step, or has other reservations, and the TPG stays
            disabled; or there is no target of the device here.
        OSError: the same.
    """
    backstore, tpg, group = _parts(name, minor)
    lun = f"{tpg}/lun/lun_0"
    configfs.set_value(f"{tpg}/enable", "0")
    initiators = configfs.folders(f"{tpg}/acls")
    for initiator in initiators:
        mapped = f"{tpg}/acls/{initiator}/lun_0"
        configfs.remove_links(mapped)
        if exists(mapped):
            os.rmdir(mapped)
    configfs.remove_links(lun)
    if not lio_reservations.is_on(backstore):  # they may be about to be switched on
        lio_reservations.prepare(backstore)
    lio_reservations.restore(backstore, tpg, wanted)
    configfs.link(backstore, f"{lun}/{os.path.basename(backstore)}")
    lio.bind_group(lun, group)
    for initiator in initiators:
        lio_acl.map_lun(tpg, initiator)
    found, there = lio_reservations.read(backstore), wanted.limited_to(initiators)
    if found is not None and found != there:
        raise CommandError(
            Problem("SAN-RES-005", f"{name}: LIO has {found} in force, not {there}", "try again")
        )
    configfs.set_value(f"{tpg}/enable", "1")


def disable(name: str, minor: int) -> None:
    """End the sessions of a target, and let none begin before a reload.

    Raises:
        CommandError: the kernel refused, or there is no target of the device here.
        OSError: the same.
    """
    _, tpg, _ = _parts(name, minor)
    configfs.set_value(f"{tpg}/enable", "0")


def enable(name: str, minor: int) -> None:
    """Let sessions begin again that `disable` has ended: nothing was put in force meanwhile.

    Raises:
        CommandError: the kernel refused, or there is no target of the device here.
        OSError: the same.
    """
    _, tpg, _ = _parts(name, minor)
    configfs.set_value(f"{tpg}/enable", "1")


def is_whole(name: str, minor: int) -> bool:
    """Whether the target is as `reload` leaves it."""
    _, tpg, _ = _parts(name, minor)
    return (
        read_text_or(f"{tpg}/enable", "0").strip() == "1"
        and any(
            is_link(f"{tpg}/lun/lun_0/{entry}") for entry in configfs.entries(f"{tpg}/lun/lun_0")
        )
        and all(
            is_link(f"{tpg}/acls/{initiator}/lun_0/lun_0")
            for initiator in configfs.folders(f"{tpg}/acls")
        )
    )


def _parts(name: str, minor: int) -> tuple[str, str, str]:
    """Return the folders of the backstore and the TPG, and the name of the ALUA group."""
    tpgs = [tpg for tpg in lio.tpgs(lio.find_targets(name)) if lio.has_lun(tpg)]
    group = lio.alua_group(name, minor)
    if not tpgs or group is None:
        raise CommandError(Problem("SAN-LIO-002", f"{name}: there is no target of it here"))
    return lio_backstore.folder(name, minor), tpgs[0], os.path.basename(group)
