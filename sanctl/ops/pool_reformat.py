# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `pool prepare --anew`: checks that a pool may be emptied here, and empties it.

Before anything goes the CIB says that this node has none of the pool's restore points any more. If
the command dies in between, files are left that nothing counts on; the other way round the last
node with a restore point could be emptied, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sanctl.drivers import bcache, bcache_superblock, flash_cache, loop, pool_notes
from sanctl.drivers.pool_problems import cache_unit
from sanctl.errors import CommandError, Problem, Refused, SanctlError
from sanctl.model.cib_change import Change, RemovePoint, SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName, PoolName
from sanctl.model.pool_cache import mount_unit_name
from sanctl.model.topology import Topology
from sanctl.ops.pool_prepare import inspect_disk, pool_of_node
from sanctl.ops.session import Session
from sanctl.plan.device.restore_points import plan_pool_emptied
from sanctl.plan.pool.flash_mode import (
    existing_cached_pool,
    reformat_problems,
)
from sanctl.plan.pool.preparation import DeviceContent
from sanctl.system.files import is_mount_point
from sanctl.system.runner import Runner

_UNIT_TIMEOUT_S = 150.0
_TOOL_TIMEOUT_S = 60.0
#: Of restore points that the CIB may name this node no more for; the journal has all.
_NAMED = 8


def check_reformat(cluster: Cluster, topology: Topology, name: PoolName, node: str) -> None:
    """Refuse to empty a pool on this node while a replica in it may be needed.

    Raises:
        Refused: the pool is not on this node; a device has no good replica elsewhere, or its
            replica is still up here.
    """
    pool = pool_of_node(topology, name, node)
    problems = list(reformat_problems(cluster, pool, NodeName.parse(node)))
    if any(path.startswith(f"{pool.path}/") for path in loop.backing_files()):
        problems.append(
            Problem(
                "SAN-POOL-021",
                f"replicas in pool {name} are still started on {node}",
                f"'sanctl node standby {node}' first",
            )
        )
    if problems:
        raise Refused(*problems)


def give_up_points(
    session: Session,
    topology: Topology,
    name: PoolName,
    node: str,
    tell: Callable[[tuple[str, ...]], object],
) -> None:
    """Check once more, and have no restore point count on this node's files in a pool.

    One change of the CIB, planned on what was checked: of two nodes that do so at once, the second
    is refused where the first has left a restore point to it alone. A note comes first: if nothing
    is discarded after all, the pool agent adds the node again (agents/points/found_files.py).

    Args:
        session: the cluster.
        topology: what cluster.toml says.
        name: the pool.
        node: this node.
        tell: called before the change, and again if it is planned again: the restore points that
            are on other nodes alone from then on, as DEVICE@POINT.

    Raises:
        Refused: as `check_reformat` says; nothing was changed.
        SanctlError: Pacemaker does not answer, or others change the CIB all the time. The change
            may have been made, or be made yet.
        OSError: the note cannot be written; nothing was changed.
    """

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        check_reformat(cluster, topology, name, node)
        changes = plan_pool_emptied(cluster, name, NodeName.parse(node))
        _note_given_up(cluster, name, changes)
        points = [
            each.point
            for each in changes
            if isinstance(each, SetPoint) and not each.point.is_deleting
        ]
        tell(tuple(f"{point.device}@{point.name}" for point in points))
        return changes

    session.change(decide)


def _note_given_up(cluster: Cluster, name: PoolName, changes: Collection[Change]) -> None:
    """Note the restore points, also those that are being deleted: their files go, too."""
    tokens = {each.point.token for each in changes if isinstance(each, SetPoint | RemovePoint)}
    present = {point.token for point in cluster.cib.points}
    pool_notes.note_taken_off(name, pool_notes.POINTS_GIVEN_UP, tokens, present)


def clear_pool(
    runner: Runner,
    topology: Topology,
    name: PoolName,
    check: Callable[[], None],
    give_up: Callable[[], object],
    *,
    identifier: str,
    given_up: Collection[str] = (),
) -> None:
    """Discard what a pool holds on this node; `prepare_pool` then makes an empty pool.

    After an interruption the command begins again: until its end nothing uses the disk.

    Args:
        runner: runs the tools.
        topology: what cluster.toml says.
        name: the pool.
        check: `check_reformat` of the cluster as it is when this is called. An operator may have
            been asked for an hour, and the units take minutes to stop: the other replica can have
            been lost meanwhile, and this one be the last.
        give_up: checks that again, and has no restore point count on this node (`give_up_points`).
            Called once the pool is out of use, as the last step before something goes: until then
            `pool prepare` without --anew has all as it was.
        identifier: what is noted as the pool's filesystem until the new one has its marker; none
            has it.
        given_up: the restore points that it takes this node off, known once it was called.

    Raises:
        Refused: the slow disk or the flash holds something else, or cannot be read; or a replica
            here may be needed by now, and nothing was discarded.
        SanctlError, OSError: the filesystem or the disk is still in use; Pacemaker does not answer.
    """
    pool = existing_cached_pool(topology, name)
    cache = flash_cache.cache_of(pool)
    origin, unit = str(cache.origin), mount_unit_name(str(pool.path))
    for device, is_flash in ((origin, False), (str(cache.flash), True)):
        found = inspect_disk(runner, pool, device, is_flash=is_flash)
        if found.holds not in {DeviceContent.OURS, DeviceContent.BLANK}:
            raise Refused(found.problem)
    check()
    runner.run(["systemctl", "stop", unit], timeout_s=_UNIT_TIMEOUT_S)
    if is_mount_point(pool.path):
        runner.run(["umount", str(pool.path)], timeout_s=_TOOL_TIMEOUT_S)
    runner.run(["systemctl", "stop", cache_unit(pool)], timeout_s=_UNIT_TIMEOUT_S)
    bcache.stop(origin, within_s=_TOOL_TIMEOUT_S)
    if bcache.cache_set_folder(str(cache.flash)) is not None:
        bcache.detach_flash(str(cache.flash), within_s=_TOOL_TIMEOUT_S)
    _give_up(give_up, name, given_up)
    # Both together: a disk of which only a part is zero yet is not used, whatever comes between.
    pool_notes.write(pool.name, pool_notes.MADE, pool.uuid)
    pool_notes.write(pool.name, pool_notes.MAKING, pool.uuid)
    # A slow disk that was replaced and answers again is not the pool's any more.
    pool_notes.write(pool.uuid, pool_notes.FILESYSTEM, identifier)
    bcache_superblock.format_origin(
        origin, flash_cache.origin_uuid(pool), flash_cache.label_of(pool)
    )
    # The last step: until here the notes say that the disk alone must not be used.
    flash_cache.clear_notes(pool)
    flash_cache.clear_flash_lost(pool)


def _give_up(give_up: Callable[[], object], name: PoolName, given_up: Collection[str]) -> None:
    """Check the cluster once more, and give up the points, when the pool is out of use and whole.

    Raises:
        SanctlError: as `give_up` says, and how the pool comes back.
    """
    try:
        give_up()
    except (SanctlError, OSError) as error:
        points = ""
        if given_up:
            more = " ..." if len(given_up) > _NAMED else ""
            points = (
                "; the CIB may name this node no more for restore points "
                f"{', '.join([*given_up][:_NAMED])}{more}, and its pool agent adds it again once "
                "the pool is mounted"
            )
        kind: type[SanctlError] = CommandError if isinstance(error, OSError) else type(error)
        why = (
            (Problem("SAN-POOL-003", f"pool {name}: {error}"),)
            if isinstance(error, OSError)
            else error.problems
        )
        raise kind(
            *why,
            Problem(
                "SAN-POOL-031",
                f"pool {name} was taken out of use here, and this run has discarded nothing"
                f"{points}",
                f"'sanctl pool prepare {name}' mounts it again, unless an earlier --anew was "
                "interrupted",
            ),
        ) from error
