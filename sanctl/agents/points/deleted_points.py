# SPDX-License-Identifier: GPL-2.0-or-later
"""Removes files of deleted restore points from this node where the CIB did not wait for it.

A deletion waits for the nodes that the CIB names, and the restore point goes from the CIB with the
last of them. A node that was taken off and has the file after all may have been away then: nothing
would tell it to remove the file any more.

Only what the notes of this node say that it was taken off: such a restore point was in the CIB
once, and one that is gone from there never comes back, as each attempt to make one has a token of
its own. What the CIB has named this node for again is in the notes no more (`found_files`): a CIB
from a backup may lack it. Any other file that the CIB says nothing of stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping

from sanctl.agents import cluster_toml
from sanctl.drivers import point_files, pool_files, pool_notes
from sanctl.drivers.point_files import PointFile
from sanctl.errors import SanctlError
from sanctl.model.restore_point import POINT_PREFIX
from sanctl.ops.session import Session
from sanctl.plan.device.lost_files import is_deleted
from sanctl.system import journal

#: What the pool agent publishes of each pool: a CIB without has lost all of the node.
_POOL_ATTRIBUTE = "sanctl-pool-"
#: For how long a monitor removes files; one at least.
_REMOVE_S = 5.0
_WORD = re.compile(r"\w+")


def remove_files(
    session: Session, usable: Mapping[str, str], properties: Mapping[str, str]
) -> None:
    """Remove the files of restore points that are gone from the CIB, and that the notes name.

    Call with quorum. A note, a pool or a file that cannot be read holds up no other one: it is
    logged, and the next monitor tries again.

    Args:
        session: the cluster.
        usable: the paths of the pools that are usable, by name.
        properties: among them the restore points, and what this node has published of its pools, as
            the CIB has them: also those that this release cannot read.

    Raises:
        SanctlError: the CIB gives no answer: the next monitor tries again.
    """
    if not any(name.startswith(_POOL_ATTRIBUTE) for name in properties):
        return
    known = {
        word
        for name, value in properties.items()
        if name.startswith(POINT_PREFIX)
        for word in _WORD.findall(value)
    }
    began_s = time.monotonic()
    for pool, path in usable.items():
        found: list[PointFile] = []
        with _logs_error(f"pool {pool}: files of deleted restore points are not looked for"):
            off = pool_notes.taken_off(pool) - known
            if off and any(file.token in off for file in point_files.listed(path)):
                found = _files(pool, path, off)
        cluster = session.observe() if found else None
        for file in found:
            assert cluster is not None
            if not is_deleted(cluster, file.device, file.uuid, file.token):
                continue
            with _logs_error(f"{file.device}: the file of a deleted restore point stays"):
                point_files.remove(file.path)
                _log(file, pool)
            if time.monotonic() - began_s > _REMOVE_S:
                return  # The next monitor goes on.


@contextlib.contextmanager
def _logs_error(what: str) -> Iterator[None]:
    try:
        yield
    except (SanctlError, OSError) as error:
        journal.write(f"{what}: {error}", priority=journal.WARNING, action="restore-points")


def _files(pool: str, path: str, tokens: frozenset[str]) -> list[PointFile]:
    """Return the files with these tokens, in the filesystem that has the pool's marker.

    Raises:
        CommandError: what is at the path is not the pool.
        OSError: it cannot be read.
    """
    found = cluster_toml.load_topology().pool(pool)
    pool_files.check_marker(path, found.uuid if found is not None else "")
    return [file for file in point_files.listed(path) if file.token in tokens]


def _log(file: PointFile, pool: str) -> None:
    journal.write(
        f"{file.device}: {os.path.basename(file.path)} was removed from pool {pool}: its restore "
        "point was deleted while this node was taken off it",
        priority=journal.NOTICE,
        device=file.device,
        action="restore-points",
    )
