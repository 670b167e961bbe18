# SPDX-License-Identifier: GPL-2.0-or-later
"""OCF agent ocf:sanctl:pool: publishes room, keeps mounts, deletes files of deleted devices.

A clone that runs on every storage node. Its monitor publishes the free space of each pool, mounts
a pool again whose filesystem has shut down, moves a pool's flash cache to the wanted mode, removes
the files of devices that were deleted (also while this node was away), applies the wanted vote
mode, cleans up failures that are over, reserves blocks for the device files, publishes the
sessions of hosts, and brings access lists of exported restore points up to date.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from sanctl.agents import (
    cib_check,
    cluster_toml,
    deleted_devices,
    ocf,
    pool_attributes,
    pool_duties,
    pool_space,
)
from sanctl.agents.fencing import cluster_run
from sanctl.agents.node import (
    failure_cleanup,
    members,
    published_fields,
    votes,
)
from sanctl.agents.pool_metadata import METADATA
from sanctl.agents.publish import attrd_cache, failed_logins, host_sessions, node_states
from sanctl.agents.recovery import fs_shutdown, pool_remount
from sanctl.agents.release import own_release
from sanctl.agents.reservations import hooks
from sanctl.drivers import (
    configfs,
    drbdsetup,
    flash_cache,
    point_files,
    pool_files,
    pool_mount,
    xfs_errors,
)
from sanctl.errors import CommandError, ConfigError, SanctlError
from sanctl.model.point_schedule import SCHEDULE_PREFIX
from sanctl.model.pool_cache import MODE_ATTRIBUTE_PREFIX, parse_wanted_mode
from sanctl.model.restore_point import POINT_PREFIX
from sanctl.model.site import COPY_PREFIX, COPY_SCHEDULE_PREFIX
from sanctl.model.site_group import COPY_GROUP_PREFIX
from sanctl.model.vote_mode import DROPPED_MEMBER_ATTRIBUTE, VOTES_ATTRIBUTE
from sanctl.system import journal, state_files
from sanctl.system.runner import DeadlineRunner, LocalRunner

if TYPE_CHECKING:
    from sanctl.model.topology import Pool

_RUNNER = LocalRunner()
# Free space is published in steps of 1/512 of the pool, rounded down: a busy pool must not change
# the CIB with every monitor.
_SPACE_STEPS = 512
#: How long a request waits for a monitor that is at the files.
_LOCK_S = 5.0
_MISSING = "SAN-CMD-001"
#: Where the kernel has exported restore points (sanctl/drivers/lio_export.py).
_EXPORTS = "/sys/kernel/config/target/core/iblock_1048576"
#: Of what is copied to second sites.
_OF_SITES = (COPY_SCHEDULE_PREFIX, COPY_PREFIX, COPY_GROUP_PREFIX)


def start() -> int:
    """Publish what the pools have, and let the monitor run."""
    _running_note().write()
    # The CIB loses a node's transient attributes when the node leaves.
    votes.invalidate_published()
    _check_pools_or_log(may_mount=False)
    return ocf.SUCCESS


def stop() -> int:
    """End the monitor's work; pools and devices are not touched."""
    _running_note().remove()
    attrd_cache.of_pools().remove()
    attrd_cache.of_sessions().remove()
    votes.invalidate_published()
    return ocf.SUCCESS


def monitor() -> int:
    """Do the work of this agent once, if it is started."""
    if not _running_note().exists():
        return ocf.NOT_RUNNING
    if not ocf.is_probe():
        _check_pools_or_log()
    return ocf.SUCCESS


def _check_pools_or_log(*, may_mount: bool = True) -> None:
    """As `_check_pools`; an error is logged, and the next monitor tries again.

    The agent only watches. A start that failed because the CIB could not be asked for a moment
    would end the watch on this node until an operator has cleaned up the failure.

    Raises:
        ConfigError: cluster.toml is missing or wrong, which does not pass by itself.
    """
    try:
        _check_pools(may_mount=may_mount)
    except ConfigError:
        raise
    except Exception as error:
        pool_duties.log_failed("the pools could not be looked at", error)


def _running_note() -> state_files.StateFile:
    return state_files.of_node("pools-running")


def validate_all() -> int:
    """Check that cluster.toml can be read."""
    _pools_here()
    return ocf.SUCCESS


def _pools_here() -> list[Pool]:
    here = os.uname().nodename
    pools = cluster_toml.load_topology().pools
    return [one for one in pools if here in {str(node) for node in one.nodes}]


def _check_pools(*, may_mount: bool = True) -> None:
    """Do what is due for each pool and for the node.

    With `may_mount` also mount filesystems again and clean up failures, which may take longer than
    a start has.
    """
    usable: dict[str, str] = {}
    published: list[str] = []
    unread: list[str] = []
    deadline_runner = pool_duties.deadline_runner(_RUNNER)
    # First, and for all: what could not be read of the CIB must not pass for what is not in it.
    attributes = pool_attributes.read(_RUNNER)
    duties = pool_duties.Duties()
    duties.run("what the CIB has lost", lambda: pool_attributes.refresh_lost(_RUNNER, attributes))
    if may_mount:
        has_lost_all = not pool_attributes.has_own(attributes)
        duties.run(
            "lost scores, and marks",
            lambda: cib_check.have_done(attributes, has_lost_all=has_lost_all),
        )
        # Where an action could not publish them, or was killed before it did.
        duties.run("the replicas' states", lambda: node_states.publish_if_due(deadline_runner))
        duties.run(
            "states of an earlier release",
            lambda: node_states.delete_of_earlier_release(deadline_runner, attributes),
        )
    node_fields = published_fields.of_node(deadline_runner)
    for one in _pools_here():
        name, path = str(one.name), str(one.path)
        try:
            # Until it is mounted again nothing can be said of its flash, and nothing done with it.
            if pool_remount.awaits_mount(one):
                if not may_mount:
                    raise CommandError(fs_shutdown.shut_down_problem(name, "a monitor does that"))
                _remount(deadline_runner, one)
            cache = _cache_fields(one, attributes)
            if may_mount:
                _remount(deadline_runner, one)
            pool_files.check_marker(path, one.uuid)
            pool_mount.refuse_read_only(name, path)
            duties.run(f"pool {name}: errors of its disk", partial(_limit_retries, path))
            total, free = pool_files.space_bytes(path)
            if not drbdsetup.is_installed():
                # Monitors of devices do not fail by it (sanctl/plan/failover/unasked_monitor.py).
                journal.write(
                    f"pool {name}: drbdsetup is not installed",
                    priority=journal.ERROR,
                    action="pool",
                )
                published.append(f"{name}=error={_MISSING}")
                usable[name] = path
                continue
            step = max(total // _SPACE_STEPS, 1)
            # Rounded down, too: what is called allocated counts as written of what was promised.
            own = pool_space.own_bytes(name, path, pool_attributes.placed(attributes))
            allocated = own // step * step
            daily = pool_space.daily_growth(name, total_bytes=total, free_bytes=free)
            growth = "" if daily is None else f" daily={daily // step * step}"
            published.append(
                f"{name}=total={total} free={free // step * step} allocated={allocated}"
                # A release that does not say so would take a clone for a device of zeros.
                # Nor would it keep hosts out of a device that awaits its second site.
                # Nor keep what hosts reserve. Its score of a replica that is disconnected would be
                # within what a guest adds.
                f"{growth} clones=1 reservations={int(hooks.are_kept_here())} follow=1 "
                f"holds={cluster_run.word()}{node_fields}{pool_space.largest_file_field(path)} "
                f"release={own_release()}{published_fields.of_sbd()}{cache}"
            )
            usable[name] = path
        except (SanctlError, OSError) as error:
            journal.write(f"pool {name}: {error}", priority=journal.ERROR, action="pool")
            code = error.problems[0].code if isinstance(error, SanctlError) else "SAN-POOL-003"
            published.append(f"{name}=error={code}")
        except Exception as error:
            # One of sanctl's own says nothing of the pool: what was published of it stays.
            pool_duties.log_failed(f"pool {name}", error)
            unread.append(name)
    duties.run(
        "what the pools have",
        lambda: pool_attributes.publish_pools(_RUNNER, published, unread=unread),
    )
    duties.run("deleted devices", lambda: deleted_devices.delete_files(usable, attributes))
    if may_mount:
        duties.run("points", lambda: _keep_points_up(deadline_runner, usable, attributes))
        duties.run("exports", lambda: _keep_exports_up(deadline_runner))
        duties.run("hosts' sessions", lambda: host_sessions.publish(deadline_runner))
        duties.run("failed logins", failed_logins.log)
        duties.run("failures", lambda: _clean_up(deadline_runner, usable))
    dropped = attributes.get(DROPPED_MEMBER_ATTRIBUTE, "")
    duties.run("members", lambda: members.drop_or_log(_RUNNER, dropped))
    wanted_votes = attributes.get(VOTES_ATTRIBUTE, "")
    duties.run("votes", lambda: votes.apply_or_log(_RUNNER, wanted_votes))
    if may_mount:
        duties.run("reserved blocks", lambda: _reserve_blocks(deadline_runner, usable, attributes))


def _limit_retries(path: str) -> None:
    found = pool_mount.mount_of(path)
    if found is not None and xfs_errors.limit_retries(found):
        journal.write(
            f"{path}: XFS shuts itself down where its disk refuses metadata for 20 s, and does not "
            "try for ever",
            action="pool",
        )


def _remount(runner: DeadlineRunner, one: Pool) -> None:
    pool_remount.remount(runner, one, max_per_day=pool_remount.MAX_REMOUNTS_PER_DAY)


def _reserve_blocks(
    runner: DeadlineRunner, usable: dict[str, str], attributes: dict[str, str]
) -> None:
    # Under the lock: fallocate(1) would make a file anew that is being removed.
    with deleted_devices.locked_files(wait_s=0.0) as is_mine:
        if is_mine:
            pool_space.reserve_device_files(
                runner, usable, without=pool_attributes.deleted(attributes)
            )


def _keep_points_up(
    runner: DeadlineRunner, usable: dict[str, str], attributes: dict[str, str]
) -> None:
    try:
        if not any(
            name.startswith((POINT_PREFIX, SCHEDULE_PREFIX, *_OF_SITES)) for name in attributes
        ) and not any(point_files.listed(path) for path in usable.values()):
            return
        # Imported here: nodes without restore points do not need it.
        from sanctl.agents.points import upkeep  # noqa: PLC0415

        is_quorate = deleted_devices.is_quorate()
        upkeep.keep_up(runner, usable, attributes, is_quorate=is_quorate)
        if is_quorate and any(name.startswith(_OF_SITES) for name in attributes):
            from sanctl.agents.sites import due  # noqa: PLC0415 - likewise

            due.start_look(runner, attributes)
            due.start_due(runner, attributes)
    except Exception as error:
        # No error of restore points makes a pool that works a failed one.
        journal.write(f"restore points: {error!r}", priority=journal.ERROR, action="restore-points")


def _keep_exports_up(runner: DeadlineRunner) -> None:
    if not configfs.folders(_EXPORTS):
        return
    try:
        # Imported here: nodes that export no restore point do not need it.
        from sanctl.agents.points import exports  # noqa: PLC0415

        exports.follow_hosts(runner, deleted_devices.is_quorate)
    except Exception as error:
        journal.write(
            f"exported restore points: who may log in could not be brought up to date: {error!r}; "
            "the next monitor tries again",
            priority=journal.ERROR,
            action="export",
        )


def _cache_fields(one: Pool, attributes: dict[str, str]) -> str:
    """Move a pool's flash cache towards the wanted mode; return its published fields."""
    if one.cache is None:
        return ""
    text = attributes.get(f"{MODE_ATTRIBUTE_PREFIX}{one.name}", "")
    wanted = parse_wanted_mode(text, one.cache.mode)
    return f" {flash_cache.apply_mode(one, wanted, at=ocf.crash_point)}"


def _clean_up(runner: DeadlineRunner, usable: dict[str, str]) -> None:
    try:
        failures = failure_cleanup.resolved_failures(runner, usable)
        if failures and deleted_devices.is_quorate():
            failure_cleanup.clean_up(runner, failures)
    except (SanctlError, OSError) as error:
        journal.write(f"failures: {error}", priority=journal.WARNING, action="failure-cleanup")


def delete_files_of_deleted_devices() -> None:
    """Do at once what is due of deleted devices; an error is logged, and the monitor tries again.

    A command has just deleted some. The monitor may be doing the same: one of both does it.
    """
    if not _running_note().exists():
        return
    usable: dict[str, str] = {}
    try:
        for one in _pools_here():
            try:
                pool_files.check_marker(str(one.path), one.uuid)
                usable[str(one.name)] = str(one.path)
            except (SanctlError, OSError):
                continue  # The monitor says so.
        deleted_devices.delete_files(usable, pool_attributes.read(_RUNNER), wait_s=_LOCK_S)
    except (SanctlError, OSError) as error:
        journal.write(
            f"deleted devices: {error}; the next monitor tries again",
            priority=journal.WARNING,
            action="delete-files",
        )


def main(argv: list[str]) -> int:
    """Carry out one action and return its OCF exit code."""
    return ocf.run(
        "pool",
        argv,
        {"start": start, "stop": stop, "monitor": monitor, "validate-all": validate_all},
        METADATA,
    )
