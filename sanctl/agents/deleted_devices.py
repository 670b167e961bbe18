# SPDX-License-Identifier: GPL-2.0-or-later
"""Removes the files of devices that were deleted, also while this node was away; then tombstones.

A tombstone is a permanent attribute of the node in the CIB, which names a device and its UUID. It
is removed last: whatever dies before that, all is done again.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from sanctl.agents import dropped_replicas, ocf
from sanctl.agents.connections import standby_first
from sanctl.agents.node import failure_cleanup
from sanctl.agents.publish import node_states
from sanctl.drivers import backup_notes, cib, loop, node_attributes, outdated_marks, pool_files
from sanctl.drivers.corosync import membership
from sanctl.errors import SanctlError
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner

#: Begin of a tombstone's name, before the device's.
TOMBSTONE = "sanctl-delete-"
_RUNNER = LocalRunner()


def is_quorate() -> bool:
    """Whether this node is in a partition with quorum; not where that is not known."""
    try:
        return membership(_RUNNER).is_quorate
    except SanctlError:
        return False  # Not known: the next monitor asks again.


def locked_files(*, wait_s: float) -> contextlib.AbstractContextManager[bool]:
    """Hold the lock of who removes files of deleted devices, or makes files of devices larger."""
    return state_files.locked(state_files.node_lock("deleted"), wait_s=wait_s)


def delete_files(
    usable: dict[str, str], attributes: dict[str, str], *, wait_s: float = 0.0
) -> None:
    """Remove the files of devices whose replica on this node was deleted.

    Only where the CIB holds a tombstone for exactly these files (name and UUID), never by their
    absence from a list; only with quorum; not while a loop device is over one of them; and, where
    the device is still there, only while another node serves it (dropped_replicas.py).
    """
    tombstones = {key: value for key, value in attributes.items() if key.startswith(TOMBSTONE)}
    # A node that is cut off changes only its own CIB. Each change makes that CIB newer, and after
    # the partitions join it could replace the CIB in which a replica has been marked meanwhile.
    if not tombstones or not is_quorate():
        return
    with locked_files(wait_s=wait_s) as is_mine:
        if is_mine:
            _remove(_standing(tombstones), usable)


def _standing(tombstones: dict[str, str]) -> dict[str, str]:
    """Return those tombstones that are still in the CIB as they were read.

    Under the lock, as a monitor and a request may have read the same ones: since then the other one
    may have ended, and a device of that name, or that replica, may have been made again.

    Raises:
        CommandError: the cluster did not answer.
    """
    found = cib.query(
        _RUNNER,
        f"//configuration/nodes/node[@uname='{os.uname().nodename}']"
        f"//nvpair[starts-with(@name,'{TOMBSTONE}')]",
    )
    now = {
        (pair.get("name"), pair.get("value"))
        for pair in (() if found is None else found.iter("nvpair"))
    }
    return {name: value for name, value in tombstones.items() if (name, value) in now}


def _remove(tombstones: dict[str, str], usable: dict[str, str]) -> None:
    removed: list[_Removed] = []
    uuids = {key.removeprefix(TOMBSTONE): value[:32] for key, value in tombstones.items()}
    kept = dropped_replicas.without_good_replica(_RUNNER, uuids)
    # Once more: what was read of who serves counts only with quorum.
    if not is_quorate():
        return
    for attribute, value in tombstones.items():
        device = attribute.removeprefix(TOMBSTONE)
        uuid, _, pool_name = value.partition(" ")
        path = usable.get(pool_name)
        if path is None or len(uuid) != 32:
            continue
        if device in kept:
            dropped_replicas.log_kept(device)
            continue
        files = pool_files.files_of(path, device, uuid)
        if any(loop.find(file) for file in files):
            journal.write(
                f"{device}: deleted, but its files are still in use here and stay for now",
                priority=journal.WARNING,
                device=device,
                action="delete-files",
            )
            continue
        try:
            pool_files.delete(files)
        except OSError as error:
            # It keeps its tombstone; those of the others go.
            journal.write(
                f"{device}: deleted, but its files could not be removed: {error}",
                priority=journal.ERROR,
                device=device,
                action="delete-files",
            )
            continue
        removed.append(_Removed(device, uuid, pool_name, attribute, value))
    _remove_tombstones(removed)


class _Removed(NamedTuple):
    """A device whose files here are gone, and its tombstone: name and value of the attribute."""

    device: str
    uuid: str
    pool: str
    attribute: str
    value: str


def _withdraw_what_is_left(here: str, removed: list[_Removed]) -> None:
    """Delete the score and the state that a stop could not withdraw, as where attrd was too busy.

    A device of that name that is created later would begin with the score.

    Raises:
        CommandError: the cluster did not answer; the tombstones stay, and all is done again.
    """
    node_states.publish_if_due(_RUNNER)
    # The state as an earlier release has published it.
    names = [
        f"@name='{prefix}{each.device}'"
        for each in removed
        for prefix in ("master-", "kept-", "sanctl-")
    ]
    left = cib.query(
        _RUNNER,
        f"//status/node_state[@uname='{here}']/transient_attributes//nvpair[{' or '.join(names)}]",
    )
    for pair in () if left is None else left.iter("nvpair"):
        node_attributes.delete(_RUNNER, pair.get("name", ""))


def _remove_tombstones(removed: list[_Removed]) -> None:
    """Remove the tombstones of devices whose files are gone; until then it is all done again.

    By one change of the CIB, in which their marks go, too: replicas that are dropped together may
    resync each other once more, and mark each other for that, after the command that drops them has
    cleared their marks.
    """
    if not removed:
        return
    ocf.crash_point("deleted-files")
    here = os.uname().nodename
    _withdraw_what_is_left(here, removed)
    if len(removed) == 1:
        # By crm_attribute: a change of the section `nodes` by cibadmin has the DC elected anew.
        outdated_marks.clear_own(_RUNNER, removed[0].device, removed[0].uuid)
        node_attributes.delete_permanent(_RUNNER, here, removed[0].attribute, timeout_s=20.0)
    else:
        cib.delete_at(
            _RUNNER,
            [
                path
                for each in removed
                for path in (
                    *outdated_marks.own_paths(each.device, each.uuid),
                    node_attributes.permanent_path(here, each.attribute, each.value),
                )
            ],
            timeout_s=20.0,
        )
    for each in removed:
        failure_cleanup.remove_all_notes(each.device)
        dropped_replicas.forget(each.device)
        standby_first.forget_deleted(each.device)
        with contextlib.suppress(OSError):  # A turn too many there costs nothing.
            backup_notes.forget_turns(each.device)
        journal.write(
            f"{each.device}: deleted, files removed from pool {each.pool}",
            priority=journal.NOTICE,
            device=each.device,
            action="delete-files",
            step="removed",
        )
