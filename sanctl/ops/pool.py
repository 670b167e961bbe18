"""Pools with a flash cache: their mode, and making one on this node."""

from __future__ import annotations

import os

from sanctl.drivers import bcache, flash, loop
from sanctl.drivers import pool as pools
from sanctl.errors import CommandError, NotConverged, Problem, Refused
from sanctl.model.cache import Mode
from sanctl.model.change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName, PoolName
from sanctl.model.poolcache import mount_unit
from sanctl.model.topology import Pool, PoolCache, Topology
from sanctl.ops.session import Session
from sanctl.plan.pool_cache import (
    away_problems,
    existing_pool,
    mode_applied,
    plan_mode,
    renewal_problems,
)
from sanctl.system.files import exists, is_folder, is_mount_point, sync_folder, write_atomically
from sanctl.system.runner import Runner

_MKFS_TIMEOUT_S = 600.0
_UNIT_TIMEOUT_S = 150.0
_TOOL_TIMEOUT_S = 60.0
_NOTHING_FOUND = 2  # blkid(8)


def set_mode(
    session: Session, topology: Topology, name: PoolName, mode: Mode, *, timeout_s: float
) -> tuple[Cluster, bool]:
    """Change how a pool's flash is used on all its nodes; return the cluster and if it changed.

    Away from write-back this returns when the slow disks have all that was on flash alone, on
    every node of the pool.

    Raises:
        Refused: there is no such pool, or it has no flash; no quorum, or maintenance mode.
        NotConverged: it is stored, and a node is not there yet, or cannot follow before it is back.
    """
    pool = existing_pool(topology, name)

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        return plan_mode(cluster, pool, mode)

    changes = session.change(decide)
    cluster = session.wait(
        lambda seen: mode_applied(seen, pool, mode),
        waiting_for=f"pool {name} to be in {mode.value} on its nodes",
        timeout_s=timeout_s,
        look="it is stored and goes on by itself: 'journalctl SANCTL_ACTION=pool-cache' on them",
    )
    problems = away_problems(cluster, pool, mode)
    if problems:
        raise NotConverged(*problems)
    return cluster, bool(changes)


def prepare(runner: Runner, topology: Topology, name: PoolName, node: str) -> tuple[str, ...]:
    """Make a pool with a flash cache on this node, or give one that is there its flash.

    What holds anything that is not the pool's is refused. Run again after an interruption it
    goes on from what is there.

    Args:
        runner: starts programs.
        topology: what cluster.toml says.
        name: the pool.
        node: this node.

    Returns:
        What was done; nothing where all was there.

    Raises:
        Refused: the pool is not on this node; a device holds something else, or is not there.
        SanctlError, OSError: a step failed.
    """
    pool = _pool_here(topology, name, node)
    cache = flash.cached(pool)
    bcache.load_module(runner)
    done: list[str] = []
    if is_mount_point(pool.path):
        seen = bcache.observe(str(cache.origin))
        if seen is not None and not seen.has_flash:
            _refuse_foreign(runner, pool, str(cache.flash))
            flash.forget_loss(pool)
            flash.attach_flash(pool)
            done.append(f"{cache.flash} is its flash")
        return (*done, *_mark(pool))
    origin = flash.superblock(str(cache.origin))
    if origin is None or origin.label != flash.label_of(pool):
        _refuse_foreign(runner, pool, str(cache.flash))
        _refuse_foreign(runner, pool, str(cache.origin))
        _format(pool, cache)
        done.append(f"{cache.origin} is its disk, {cache.flash} its flash")
    found = flash.superblock(str(cache.flash))
    if found is None or found.label != flash.label_of(pool):
        _refuse_foreign(runner, pool, str(cache.flash))
        flash.empty(pool, str(cache.flash))
        done.append(f"{cache.flash} is its flash")
    runner.run(["systemctl", "restart", flash.service_of(pool)], timeout_s=_UNIT_TIMEOUT_S)
    seen = bcache.observe(str(cache.origin))
    if seen is None or not seen.disk:
        raise CommandError(flash.lost_problem(pool))
    disk = f"/dev/{seen.disk}"
    if _is_blank(runner, disk):
        # Its uuid is the pool's: with it a marker that is missing is one not written yet.
        runner.run(["mkfs.ext4", "-q", "-F", "-U", pool.uuid, disk], timeout_s=_MKFS_TIMEOUT_S)
        runner.run(
            ["udevadm", "trigger", "--action=change", "--settle", disk], timeout_s=_TOOL_TIMEOUT_S
        )
        done.append("a filesystem was made")
    os.makedirs(pool.path, exist_ok=True)
    runner.run(["systemctl", "start", mount_unit(str(pool.path))], timeout_s=_UNIT_TIMEOUT_S)
    return (*done, *_mark(pool))


def refuse_renewal(cluster: Cluster, topology: Topology, name: PoolName, node: str) -> None:
    """Refuse to make a pool of this node anew while anything in it may be needed.

    Raises:
        Refused: the pool is not on this node; a device has no good copy elsewhere, or its replica
            is still up here.
    """
    pool = _pool_here(topology, name, node)
    problems = list(renewal_problems(cluster, pool, NodeName.parse(node)))
    if any(path.startswith(f"{pool.path}/") for path in loop.backing_files()):
        problems.append(
            Problem(
                "SAN-POOL-021",
                f"replicas in pool {name} are still up on {node}",
                f"'sanctl node standby {node}' first",
            )
        )
    if problems:
        raise Refused(*problems)


def clear(runner: Runner, topology: Topology, name: PoolName) -> None:
    """Throw away what a pool of this node holds; `prepare` then makes it anew.

    Raises:
        SanctlError, OSError: the filesystem or the disk is still used.
    """
    pool = existing_pool(topology, name)
    cache = flash.cached(pool)
    unit = mount_unit(str(pool.path))
    runner.run(["systemctl", "stop", unit], timeout_s=_UNIT_TIMEOUT_S)
    if is_mount_point(pool.path):
        runner.run(["umount", str(pool.path)], timeout_s=_TOOL_TIMEOUT_S)
    runner.run(["systemctl", "stop", flash.service_of(pool)], timeout_s=_UNIT_TIMEOUT_S)
    bcache.stop(str(cache.origin), within_s=_TOOL_TIMEOUT_S)
    if bcache.set_of(str(cache.flash)) is not None:
        bcache.release_flash(str(cache.flash), within_s=_TOOL_TIMEOUT_S)
    bcache.format_origin(str(cache.origin), flash.origin_uuid(pool), flash.label_of(pool))
    # The last step: until here the notes say that the disk alone must not be used.
    flash.forget_notes(pool)
    flash.forget_loss(pool)


def _pool_here(topology: Topology, name: PoolName, node: str) -> Pool:
    pool = existing_pool(topology, name)
    if node not in {each.value for each in pool.nodes}:
        raise Refused(
            Problem(
                "SAN-POOL-014",
                f"{node} is not among the nodes of pool {name}",
                f"run it on one that is: {', '.join(each.value for each in pool.nodes)}",
            )
        )
    return pool


def _format(pool: Pool, cache: PoolCache) -> None:
    """Make both devices the pool's; the slow disk last, by which a run knows that this is done."""
    flash.empty(pool, str(cache.flash))
    bcache.format_origin(str(cache.origin), flash.origin_uuid(pool), flash.label_of(pool))


def _refuse_foreign(runner: Runner, pool: Pool, device: str) -> None:
    if not exists(device):
        raise Refused(
            Problem(
                "SAN-POOL-022", f"{device} is not there", "is it plugged in, and its name right?"
            )
        )
    found = flash.superblock(device)
    if found is not None and found.label == flash.label_of(pool):
        return
    if found is not None or not _is_blank(runner, device):
        raise Refused(
            Problem(
                "SAN-POOL-019",
                f"{device} holds something that is not pool {pool.name}'s",
                f"if nobody needs it: 'wipefs --all {device}', then again",
            )
        )


def _is_blank(runner: Runner, device: str) -> bool:
    """Whether blkid finds nothing at all on a device."""
    found = runner.run(
        ["blkid", "--probe", device], timeout_s=_TOOL_TIMEOUT_S, ok=(0, _NOTHING_FOUND)
    )
    return found.status == _NOTHING_FOUND


def _mark(pool: Pool) -> tuple[str, ...]:
    """Write the marker into a filesystem that was made for the pool and never had one."""
    marker, devices = f"{pool.path}/{pools.MARKER}", f"{pool.path}/devices"
    if exists(marker) and is_folder(devices):
        return ()
    if not exists(marker):
        if exists(devices, follow_symlinks=False):
            raise Refused(
                Problem(
                    "SAN-POOL-001",
                    f"{marker} is missing, and {devices} is there: not touched",
                    "find out what removed it",
                )
            )
        write_atomically(marker, f"{pool.uuid}\n")
    os.makedirs(devices, mode=0o700, exist_ok=True)
    sync_folder(str(pool.path))
    return ("it is marked",)
