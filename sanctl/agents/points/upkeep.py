# SPDX-License-Identifier: GPL-2.0-or-later
"""The pool agent's part in restore points: schedules; removes files, names them, publishes sizes.

A file goes where the CIB says that its restore point is being deleted. One that never became a
restore point's, because a process or a node died, goes after ten minutes, with quorum: its order
has long expired by then. Any other file stays, also one that the CIB says nothing of, but for what
this node was taken off (`deleted_points`). Where it is the file that is gone, or there again, the
CIB is told (`lost_files`, `found_files`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from sanctl.agents.points import (
    deleted_points,
    found_files,
    known_blocks,
    lost_files,
    scheduled,
)
from sanctl.drivers import backup_notes, node_attributes, point_files, reflink
from sanctl.drivers.pacemaker import Pacemaker
from sanctl.drivers.point_files import PointFile
from sanctl.errors import SanctlError
from sanctl.model.restore_point import (
    FILE_IS_GONE,
    POINT_PREFIX,
    SIZES_ATTRIBUTE,
    RestorePoint,
    extents_key,
)
from sanctl.ops.session import Session
from sanctl.plan.device.data_extents import devices_counted
from sanctl.plan.device.point_sizes import PointOnDisk, SeenSize, due_sizes, neighbours
from sanctl.plan.device.restore_points import plan_file_removed
from sanctl.system import journal, state_files
from sanctl.system.clock import SystemClock
from sanctl.system.runner import Runner

_LEFT_OVER_S = 600.0
_PUBLISH_EVERY_S = 60.0
#: For how long a monitor removes files; one at least.
_DELETE_S = 5.0
#: For how long a monitor looks at what restore points hold; at one at least.
_LOOK_S = 0.25
_MIB = 1 << 20


class _Silent:
    def update(self, text: str) -> None:
        """Nobody watches."""


def keep_up(
    runner: Runner, usable: dict[str, str], properties: dict[str, str], *, is_quorate: bool
) -> None:
    """Do what is due for the restore points in the pools of this node.

    An error is logged, and the next monitor tries again. It holds up nothing else: a file that
    cannot be removed keeps no device from its restore points.

    Args:
        runner: runs programs.
        usable: the paths of the pools that are usable, by name.
        properties: among them the restore points and schedules, as the CIB has them.
        is_quorate: whether this part of the cluster has quorum.
    """
    points = [
        point
        for identifier, value in properties.items()
        if identifier.startswith(POINT_PREFIX)
        and (point := RestorePoint.parse(identifier, value)) is not None
    ]
    if is_quorate:
        # First: the others may use up the time that the monitor has.
        with _logs_error():
            scheduled.start_due(runner, properties, points)
    for pool, path in usable.items():
        with _logs_error():
            _settle(pool, path, points, is_quorate=is_quorate)
    if is_quorate:
        with _logs_error():
            _delete(runner, usable, points)
        with _logs_error():
            lost_files.take_off(_session(runner), usable, points)
        with _logs_error():
            found_files.forget(usable, points)
        with _logs_error():
            found_files.add_again(_session(runner), usable, points)
        with _logs_error():
            deleted_points.remove_files(_session(runner), usable, properties)
    with _logs_error():
        _publish_sizes(runner, usable, devices_counted(properties))
    if is_quorate:
        with _logs_error():
            _remove_of_backups(runner)


@contextlib.contextmanager
def _logs_error() -> Iterator[None]:
    try:
        yield
    except (SanctlError, OSError) as error:
        journal.write(f"restore points: {error}", priority=journal.WARNING, action="restore-points")


def _remove_of_backups(runner: Runner) -> None:
    """Remove the restore points that backups of this node have left, which run no longer."""
    if not backup_notes.noted():
        return
    # Imported here: the pool's monitors have nothing of it to do but after a backup.
    from sanctl.ops.backup_point import remove_abandoned  # noqa: PLC0415

    for device in remove_abandoned(_session(runner)):
        _log(f"{device}: the restore point of a backup that broke off is removed", device)


def _settle(pool: str, path: str, points: list[RestorePoint], *, is_quorate: bool) -> None:
    """Name a pool's copies that are restore points; remove those that have become none."""
    here, known = os.uname().nodename, {point.token: point for point in points}
    unknown = []
    for file in point_files.listed(path):
        if not file.is_taking:
            continue
        point = known.get(file.token)
        if point is None:
            unknown.append(file)
        # Another node's attempt for the same order may have made it: this copy is of another
        # moment then, and gets no name by which it passes for the restore point.
        elif here in point.nodes:
            with _logs_error():
                point_files.keep(file.path)
    seen_for_s = _seen_for_s(pool, unknown)
    for file in unknown if is_quorate else ():
        if seen_for_s[file.path] > _LEFT_OVER_S:
            with _logs_error():
                point_files.remove(file.path)
                _log(f"{file.device}: a copy that became no restore point was removed", file.device)


def _seen_for_s(pool: str, files: list[PointFile]) -> dict[str, float]:
    """Return for how long this node has seen these files of a pool, by path, and note it.

    Not by the time of the file: a clock that is set has one go that is just about to be a restore
    point, and the CIB would name it without a file. A boot begins anew.

    Raises:
        OSError: it is not known.
    """
    note, now_s = state_files.of_pool(pool, "points-unnamed"), time.monotonic()
    text = note.read()
    since = {
        path: float(at) for path, _, at in (line.rpartition(" ") for line in text.splitlines())
    }
    seen = {file.path: since.get(file.path, now_s) for file in files}
    wanted = "\n".join(f"{path} {at_s}" for path, at_s in seen.items())
    if wanted != text:
        note.write(wanted)
    return {path: now_s - at_s for path, at_s in seen.items()}


def _delete(runner: Runner, usable: dict[str, str], points: list[RestorePoint]) -> None:
    """Remove the files of points that are being deleted, for a while; note all in one change.

    Also where the CIB does not name this node, which may have been taken off.
    """
    here, began_s = os.uname().nodename, time.monotonic()
    removed: list[RestorePoint] = []
    for point in points:
        path = usable.get(point.pool)
        if path is None or not point.is_deleting:
            continue
        if removed and time.monotonic() - began_s > _DELETE_S:
            break  # The next monitor goes on.
        with _logs_error():
            final = point_files.final_path(path, point.device, point.uuid, point.token)
            # In the order in which the one becomes the other: in between it may get its name.
            point_files.remove(point_files.unnamed_path(final))
            point_files.remove(final)
            if here in point.nodes:
                removed.append(point)
    if not removed:
        return
    _session(runner).change(
        lambda seen: tuple(
            change for point in removed for change in plan_file_removed(seen, point, here)
        ),
        reads_replicas=False,
    )
    for point in removed:
        _log(f"{point.device}: restore point {point.name} is deleted here", point.device)


def _publish_sizes(runner: Runner, usable: dict[str, str], counted: frozenset[str]) -> None:
    """Publish how much of the pools each restore point alone holds, in MiB rounded up.

    And of which the file is gone, and how many extents the data files of devices have.
    """
    files = {
        file.token: file
        for path in usable.values()
        for file in point_files.listed(path)
        if not file.is_taking
    }
    seen = _look_at_sizes(files)
    note = state_files.of_node("point-sizes-published")
    gone = " ".join(f"{token}={FILE_IS_GONE}" for token in sorted(lost_files.noted()))
    names = " ".join((*files, gone)) if gone else " ".join(files)
    before, now_s = note.read().split("\n"), time.monotonic()
    if before[0] == names and len(before) == 2 and 0 <= now_s - float(before[1]) < _PUBLISH_EVERY_S:
        return
    value = " ".join(
        f"{token}={-(-seen[token].own_bytes // _MIB) * _MIB}" for token in files if token in seen
    )
    value = " ".join(filter(None, (value, gone, _extents(usable, counted))))
    # Also where it is as before: the attribute ends with the node's membership.
    node_attributes.publish(runner, SIZES_ATTRIBUTE, value)
    # One that is not known yet is published as soon as it is.
    note.write(f"{names if len(seen) == len(files) else ''}\n{now_s}")


def _extents(usable: dict[str, str], counted: frozenset[str]) -> str:
    """Return how many extents the data files of these devices have here, as it is published.

    The kernel has the numbers in memory. A filesystem that counts none says 0, and is left out.
    """
    words = []
    for path in usable.values():
        for name in sorted(known_blocks.names(path, ".data")):
            device, _, uuid = name.removesuffix(".data").partition(".")
            if device not in counted:
                continue
            # One that is gone since, or cannot be read, is not known; the others are.
            with contextlib.suppress(OSError):
                if count := reflink.extent_count(f"{path}/devices/{name}"):
                    words.append(f"{extents_key(device, uuid)}={count}")
    return " ".join(words)


def _look_at_sizes(files: dict[str, PointFile]) -> dict[str, SeenSize]:
    """Look anew what restore points hold where that is due, for a moment; return what is known."""
    note = state_files.of_node("point-sizes")
    lines = (SeenSize.parse(line) for line in note.read().splitlines())
    seen = {each[0]: each[1] for each in lines if each is not None and each[0] in files}
    on_disk = []
    for file in files.values():
        # Of one that cannot be read nothing is known; of the others it is.
        with _logs_error():
            made_ns = os.stat(file.path).st_mtime_ns
            on_disk.append(PointOnDisk(file.token, f"{file.device}.{file.uuid}", made_ns))
    between, began_s = neighbours(on_disk), time.monotonic()
    due = due_sizes(on_disk, seen, began_s)
    for token in due:
        with _logs_error():
            own_bytes = reflink.blocks_of(files[token].path).own
            seen[token] = SeenSize(own_bytes, time.monotonic(), between[token])
        if time.monotonic() - began_s > _LOOK_S:
            break  # The next monitor goes on.
    if due:
        note.write("\n".join(size.line(token) for token, size in seen.items()))
    return seen


def _session(runner: Runner) -> Session:
    return Session(Pacemaker(runner), SystemClock(), _Silent())


def _log(text: str, device: str) -> None:
    journal.write(text, priority=journal.NOTICE, device=device, action="restore-points")
