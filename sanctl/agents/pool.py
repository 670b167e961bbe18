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
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sanctl.agents import cib_check, deleted_devices, ocf, pool_space
from sanctl.agents.fencing import cluster_run
from sanctl.agents.node import (
    failure_cleanup,
    links,
    members,
    own_disk,
    reservations_service,
    votes,
)
from sanctl.agents.pool_metadata import METADATA
from sanctl.agents.publish import attrd_cache, failed_logins, host_sessions, node_states
from sanctl.agents.recovery import fs_shutdown
from sanctl.agents.release import own_release
from sanctl.agents.replica import parts
from sanctl.agents.reservations import hooks
from sanctl.drivers import (
    cib,
    configfs,
    drbd_kernel,
    drbdsetup,
    flash_cache,
    node_attributes,
    point_files,
    pool_files,
    pool_mount,
    sbd,
    xfs_errors,
)
from sanctl.errors import CommandError, ConfigError, SanctlError
from sanctl.model.drbd import bitmaps_per_replica
from sanctl.model.outdated_mark import PREFIX as MARK_PREFIX
from sanctl.model.point_schedule import SCHEDULE_PREFIX
from sanctl.model.pool_cache import MODE_ATTRIBUTE_PREFIX, parse_wanted_mode
from sanctl.model.restore_point import POINT_PREFIX, POINTS_ID
from sanctl.model.site import COPY_PREFIX, COPY_SCHEDULE_PREFIX, SITES_ID
from sanctl.model.site_group import COPY_GROUP_PREFIX
from sanctl.model.vote_mode import DROPPED_MEMBER_ATTRIBUTE, VOTES_ATTRIBUTE
from sanctl.system import journal, memory, state_files
from sanctl.system.runner import DeadlineRunner, LocalRunner

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET

    from sanctl.model.topology import Pool

_RUNNER = LocalRunner()
# Free space is published in steps of 1/512 of the pool, rounded down: a busy pool must not change
# the CIB with every monitor.
_SPACE_STEPS = 512
# What a monitor needs beside mounting filesystems and cleaning up failures.
_RESERVE_S = 8.0
#: What a monitor has where Pacemaker says no time.
_MONITOR_S = 30.0
#: How long a request waits for a monitor that is at the files.
_LOCK_S = 5.0
_POOL_ATTRIBUTE = "sanctl-pool-"
#: Before the UUID of a device with a replica here, among what is read of the CIB.
_PLACED = "uuid "
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
        _log_failed("the pools could not be looked at", error)


def _running_note() -> state_files.StateFile:
    return state_files.of_node("pools-running")


def validate_all() -> int:
    """Check that cluster.toml can be read."""
    _pools_here()
    return ocf.SUCCESS


def _pools_here() -> list[Pool]:
    here = os.uname().nodename
    return [one for one in parts.load_topology().pools if here in {str(node) for node in one.nodes}]


def _check_pools(*, may_mount: bool = True) -> None:
    """Do what is due for each pool and for the node.

    With `may_mount` also mount filesystems again and clean up failures, which may take longer than
    a start has.
    """
    usable: dict[str, str] = {}
    published: list[str] = []
    deadline_runner = _deadline_runner()
    # First, and for all: what could not be read of the CIB must not pass for what is not in it.
    attributes = _node_attributes()
    duties = _Duties()
    duties.run("what the CIB has lost", lambda: _refresh_lost_attributes(attributes))
    if may_mount:
        has_lost_all = not _has_own(attributes)
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
    node_fields = _node_fields(deadline_runner)
    for one in _pools_here():
        name, path = str(one.name), str(one.path)
        try:
            # Until it is mounted again nothing can be said of its flash, and nothing done with it.
            if fs_shutdown.awaits_mount(one):
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
            own = pool_space.own_bytes(name, path, _placed(attributes))
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
                f"release={own_release()}{_sbd_field()}{cache}"
            )
            usable[name] = path
        except (SanctlError, OSError) as error:
            journal.write(f"pool {name}: {error}", priority=journal.ERROR, action="pool")
            code = error.problems[0].code if isinstance(error, SanctlError) else "SAN-POOL-003"
            published.append(f"{name}=error={code}")
        except Exception as error:
            # One of sanctl's own says nothing of the pool: what was published of it stays.
            _log_failed(f"pool {name}", error)
    duties.run("what the pools have", lambda: _publish(published))
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
    fs_shutdown.remount(runner, one, max_per_day=fs_shutdown.MAX_REMOUNTS_PER_DAY)


class _Duties:
    """Carries out a monitor's duties one by one: what one cannot do keeps no other from its turn.

    None relies on the ones before it. Once one has failed the rest are left to the next monitor if
    too little time is left for them: a monitor that times out is a failed one.
    """

    def __init__(self) -> None:
        self._is_over = False

    def run(self, what: str, duty: Callable[[], object]) -> None:
        """Carry out a duty; an error is logged, and the next monitor tries again.

        Args:
            what: what the duty is about, for the log.
            duty: carries it out.

        Raises:
            ConfigError: cluster.toml is missing or wrong.
        """
        if self._is_over:
            return
        try:
            duty()
        except ConfigError:
            raise
        except Exception as error:
            _log_failed(what, error)
            self._is_over = ocf.remaining_s(_MONITOR_S) < _RESERVE_S


def _log_failed(what: str, error: Exception) -> None:
    text = str(error) if isinstance(error, (SanctlError, OSError)) else repr(error)
    journal.write(
        f"{what}: {text}; the next monitor tries again", priority=journal.ERROR, action="pool"
    )


def _reserve_blocks(
    runner: DeadlineRunner, usable: dict[str, str], attributes: dict[str, str]
) -> None:
    # Under the lock: fallocate(1) would make a file anew that is being removed.
    with deleted_devices.locked_files(wait_s=0.0) as is_mine:
        if is_mine:
            pool_space.reserve_device_files(runner, usable, without=_deleted(attributes))


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


def _deleted(attributes: dict[str, str]) -> frozenset[str]:
    """Return `NAME.UUID` of the devices whose files are to be removed."""
    return frozenset(
        f"{name.removeprefix(deleted_devices.TOMBSTONE)}.{value.partition(' ')[0]}"
        for name, value in attributes.items()
        if name.startswith(deleted_devices.TOMBSTONE)
    )


def _placed(attributes: dict[str, str]) -> frozenset[str]:
    """Return the UUIDs of the devices that have a replica here, in whatever pool."""
    placed = {name.removeprefix(_PLACED) for name in attributes if name.startswith(_PLACED)}
    return frozenset(placed - {stem.rpartition(".")[2] for stem in _deleted(attributes)})


def _deadline_runner() -> DeadlineRunner:
    """Return a runner whose programs end before the monitor's timeout."""
    return DeadlineRunner(_RUNNER, time.monotonic() + ocf.remaining_s(_MONITOR_S) - _RESERVE_S)


def _node_fields(runner: DeadlineRunner) -> str:
    """Return the published fields that are about the node, each after a blank.

    An error of one of sanctl's own says nothing of the pools, and keeps nothing else from being
    published.
    """
    found = ""
    for what, fields in (
        ("the node's memory", _memory_fields),
        ("the node's own disk", lambda: own_disk.fields(runner)),
        ("Corosync's links", lambda: links.field(runner)),
        ("the reservations' service", reservations_service.field),
    ):
        try:
            found += fields()
        except Exception as error:
            _log_failed(what, error)
    return found


def _memory_fields() -> str:
    """Return the published fields from which follows whether a replica's bitmap has room.

    None where DRBD is not loaded, or which one is not known.
    """
    try:
        bitmaps = bitmaps_per_replica(drbd_kernel.generation())
        return f" memory={memory.total_bytes()} bitmaps={bitmaps}"
    except (CommandError, OSError):
        return ""


def _sbd_field() -> str:
    """Return the published field that says how SBD runs here; empty: not known."""
    try:
        mode = sbd.mode()
    except OSError:
        return ""
    return f" sbd={mode}" if mode else ""


def _cache_fields(one: Pool, attributes: dict[str, str]) -> str:
    """Move a pool's flash cache towards the wanted mode; return its published fields."""
    if one.cache is None:
        return ""
    text = attributes.get(f"{MODE_ATTRIBUTE_PREFIX}{one.name}", "")
    wanted = parse_wanted_mode(text, one.cache.mode)
    return f" {flash_cache.apply_mode(one, wanted, at=ocf.crash_point)}"


def _refresh_lost_attributes(attributes: dict[str, str]) -> None:
    """Make pacemaker-attrd write this node's attributes again where the CIB has lost them.

    A controller that restarts removes all transient attributes of its node from the CIB as it
    joins. pacemaker-attrd still holds them, and writes a value again only when the value changes:
    promotion scores would be missing for good (docs/adr/0036).
    """
    has_published = len(attrd_cache.published_fields(attrd_cache.of_pools())) > 1
    if (
        _has_own(attributes)
        or not has_published
        or not attrd_cache.must_be_in_cib(attrd_cache.of_pools(), attrd_cache.attrd_pid())
    ):
        return
    journal.write(
        "the CIB has lost this node's attributes: pacemaker-attrd writes them again",
        priority=journal.WARNING,
        action="attributes",
    )
    node_attributes.refresh(_RUNNER)
    # The daemon may have lost them, too, where its node was cut off and is back: this monitor gives
    # it these again, and scores are looked for once these are in the CIB. The next monitor of
    # agents/reach.py gives it that one.
    try:
        attrd_cache.have_published_again(attrd_cache.of_pools())
        attrd_cache.have_published_again(attrd_cache.of_reach())
    except OSError as error:
        journal.write(
            f"what was published cannot be noted: {error}; the next monitor tries again",
            priority=journal.WARNING,
            action="attributes",
        )


def _has_own(attributes: dict[str, str]) -> bool:
    """Whether the CIB has what this agent publishes: without that it has lost all of the node."""
    return any(name.startswith(_POOL_ATTRIBUTE) for name in attributes)


def _clean_up(runner: DeadlineRunner, usable: dict[str, str]) -> None:
    try:
        failures = failure_cleanup.resolved_failures(runner, usable)
        if failures and deleted_devices.is_quorate():
            failure_cleanup.clean_up(runner, failures)
    except (SanctlError, OSError) as error:
        journal.write(f"failures: {error}", priority=journal.WARNING, action="failure-cleanup")


def _publish(lines: list[str]) -> None:
    cached, text, attrd_pid = attrd_cache.of_pools(), "\n".join(lines), attrd_cache.attrd_pid()
    if attrd_cache.is_current(cached, attrd_pid, text):
        return
    for line in lines:
        name, _, value = line.partition("=")
        node_attributes.publish(_RUNNER, f"{_POOL_ATTRIBUTE}{name}", value)
    attrd_cache.record(cached, attrd_pid, text)


def _node_attributes() -> dict[str, str]:
    """Return the node attributes in the CIB that are for this agent, and those of this agent.

    For this agent: tombstones of deleted devices, wanted cache modes and vote mode; the restore
    points and their schedules, which are cluster properties; replicas' states that an earlier
    release has published; promotion scores; the marks of other nodes' replicas, a constraint by
    its id; and `uuid UUID` of each device with a replica here.
    """
    here = os.uname().nodename
    found = cib.query(
        _RUNNER,
        f"//configuration/nodes/node[@uname='{here}']"
        f"//nvpair[starts-with(@name,'{deleted_devices.TOMBSTONE}')"
        f" or starts-with(@name,'{MODE_ATTRIBUTE_PREFIX}') or @name='{VOTES_ATTRIBUTE}'"
        f" or @name='{DROPPED_MEMBER_ATTRIBUTE}']"
        f"|//status/node_state[@uname='{here}']/transient_attributes"
        f"//nvpair[starts-with(@name,'{_POOL_ATTRIBUTE}') or starts-with(@name,'master-')"
        f" or (starts-with(@name,'{node_states.EARLIER_PREFIX}')"
        f" and starts-with(@value,'{node_states.EARLIER_BEGIN}'))]"
        f"|//configuration/crm_config/cluster_property_set[@id='{POINTS_ID}']/nvpair"
        f"|//configuration/crm_config/cluster_property_set[@id='{SITES_ID}']/nvpair"
        f"|//configuration/nodes/node[@uname!='{here}']"
        f"//nvpair[starts-with(@name,'{MARK_PREFIX}')]"
        f"|//configuration/constraints"
        f"/rsc_location[starts-with(@id,'{MARK_PREFIX}')][@node!='{here}']"
        f"|//configuration/resources/clone/primitive[@provider='sanctl' and @type='device']"
        f"[instance_attributes/nvpair[@name='nodes'"
        f" and contains(concat(' ',normalize-space(@value),' '),' {here} ')]]"
        f"/instance_attributes/nvpair[@name='uuid']",
    )
    if found is None:
        return {}
    return {
        _key(each): each.get("value", "")
        for each in found.iter()
        if each.tag in {"nvpair", "rsc_location"}
    }


def _key(element: ET.Element) -> str:
    name = element.get("name", element.get("id", ""))
    return f"{_PLACED}{element.get('value', '')}" if name == "uuid" else name


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
        deleted_devices.delete_files(usable, _node_attributes(), wait_s=_LOCK_S)
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
