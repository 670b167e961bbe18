# SPDX-License-Identifier: GPL-2.0-or-later
"""ocf:sanctl:pool: the pools of this node.

A clone that runs on every storage node. It tells the cluster how much room each pool has,
removes the files of devices that were deleted, also while this node was away, and has the node
count votes as the cluster wants it.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from sanctl.agents import ocf
from sanctl.agents.node import failure_cleanup, votes
from sanctl.agents.publish import attrd_cache
from sanctl.agents.recovery import fs_shutdown
from sanctl.agents.replica import parts
from sanctl.drivers import cib, flash_cache, loop, node_attributes, outdated_marks, pool_files
from sanctl.drivers.corosync import membership
from sanctl.errors import SanctlError
from sanctl.model.pool_cache import MODE_ATTRIBUTE_PREFIX, parse_wanted_mode
from sanctl.model.vote_mode import VOTES_ATTRIBUTE
from sanctl.system import journal, state_files
from sanctl.system.runner import DeadlineRunner, LocalRunner

if TYPE_CHECKING:
    from sanctl.model.topology import Pool

_RUNNER = LocalRunner()
# Free space is told in steps of 1/512 of the pool, rounded down: a busy pool must not rewrite the
# cluster's status with every monitor.
_STEPS = 512
_TOMBSTONE = "sanctl-delete-"
# What a monitor needs beside mounting a filesystem anew.
_REST_S = 8.0
_MARK = outdated_marks.attribute_name("")
_POOL = "sanctl-pool-"

METADATA = """\
<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd">
<resource-agent name="pool" version="0.1.0">
<version>1.1</version>
<longdesc lang="en">
Watches the pools of a storage node: publishes their free space as node attributes, removes the
files of deleted devices, and counts votes as wanted. Runs as a clone, made by the playbook.
</longdesc>
<shortdesc lang="en">sanctl pools of a node</shortdesc>
<parameters/>
<actions>
<action name="start" timeout="20s"/>
<action name="stop" timeout="20s"/>
<action name="monitor" interval="10s" timeout="30s" depth="0"/>
<action name="validate-all" timeout="20s"/>
<action name="meta-data" timeout="5s"/>
</actions>
</resource-agent>
"""


def start() -> int:
    """Begin to watch."""
    _running().write()
    # The cluster forgets what a node published when the node leaves.
    votes.invalidate_published()
    _look(may_mount=False)
    return ocf.SUCCESS


def stop() -> int:
    """Cease to watch; pools and devices are not touched."""
    _running().remove()
    attrd_cache.of_pools().remove()
    votes.invalidate_published()
    return ocf.SUCCESS


def monitor() -> int:
    """Publish and reap, if running."""
    if not _running().exists():
        return ocf.NOT_RUNNING
    if not ocf.is_probe():
        _look()
    return ocf.SUCCESS


def _running() -> state_files.StateFile:
    return state_files.of_node("pools-running")


def validate_all() -> int:
    """Check that cluster.toml can be read."""
    _pools_here()
    return ocf.SUCCESS


def _pools_here() -> list[Pool]:
    here = os.uname().nodename
    return [one for one in parts.load_topology().pools if here in {str(node) for node in one.nodes}]


def _look(*, may_mount: bool = True) -> None:
    """Publish, reap and mount anew; the last may take its time, which a start has not.

    So may having failures forgotten.
    """
    usable: dict[str, str] = {}
    words: list[str] = []
    hurried = _hurried()
    noted = _notes_of_this_node()
    _have_written_again(noted)
    for one in _pools_here():
        name, path = str(one.name), str(one.path)
        try:
            cache = _cache_words(one, noted)
            if may_mount:
                fs_shutdown.remount(hurried, one, most_a_day=fs_shutdown.MAX_REMOUNTS_A_DAY)
            pool_files.check_marker(path, one.uuid)
            total, free = pool_files.space_bytes(path)
            step = max(total // _STEPS, 1)
            allocated = -(-pool_files.allocated_bytes(path) // step) * step
            words.append(
                f"{name}=total={total} free={free // step * step} allocated={allocated}{cache}"
            )
            usable[name] = path
        except (SanctlError, OSError) as error:
            journal.write(f"pool {name}: {error}", priority=journal.ERROR, action="pool")
            code = error.problems[0].code if isinstance(error, SanctlError) else "SAN-POOL-003"
            words.append(f"{name}=error={code}")
    _publish(words)
    _reap(usable, noted)
    if may_mount:
        _clean_up(hurried, usable)
    votes.apply_or_log(_RUNNER, noted.get(VOTES_ATTRIBUTE, ""))


def _hurried() -> DeadlineRunner:
    """What it starts has ended before the cluster calls the monitor too late."""
    return DeadlineRunner(_RUNNER, time.monotonic() + ocf.remaining_s(30.0) - _REST_S)


def _cache_words(one: Pool, noted: dict[str, str]) -> str:
    """Bring a pool's flash towards the wanted mode, and say where it is."""
    if one.cache is None:
        return ""
    wish = parse_wanted_mode(noted.get(f"{MODE_ATTRIBUTE_PREFIX}{one.name}", ""), one.cache.mode)
    return f" {flash_cache.apply_mode(one, wish, at=ocf.crash_point)}"


def _have_written_again(noted: dict[str, str]) -> None:
    """Have the attribute daemon write what it knows, where the CIB has lost it.

    A controller that is started anew wipes its node's transient attributes as it joins, all of
    them. The daemon that holds them was not asked, and writes a value again only when it changes:
    promotion scores would be missing for good (docs/adr/0036).
    """
    is_in_cib = any(name.startswith(_POOL) for name in noted)
    has_published = len(attrd_cache.published_fields(attrd_cache.of_pools())) > 1
    if (
        is_in_cib
        or not has_published
        or not attrd_cache.must_be_in_cib(attrd_cache.of_pools(), attrd_cache.attrd_pid())
    ):
        return
    journal.write(
        "the CIB has lost this node's attributes: having them written again",
        priority=journal.WARNING,
        action="attributes",
    )
    node_attributes.refresh(_RUNNER)


def _clean_up(runner: DeadlineRunner, usable: dict[str, str]) -> None:
    try:
        failures = failure_cleanup.ended_failures(runner, usable)
        if failures and _is_quorate():
            failure_cleanup.clean_up(runner, failures)
    except (SanctlError, OSError) as error:
        journal.write(f"failures: {error}", priority=journal.WARNING, action="retry")


def _publish(words: list[str]) -> None:
    cached, text, listener = attrd_cache.of_pools(), "\n".join(words), attrd_cache.attrd_pid()
    if attrd_cache.is_current(cached, listener, text):
        return
    for line in words:
        name, _, value = line.partition("=")
        node_attributes.publish(_RUNNER, f"{_POOL}{name}", value)
    attrd_cache.record(cached, listener, text)


def _notes_of_this_node() -> dict[str, str]:
    """Return what the cluster has noted for this node's agent: deletions, and how to count.

    And what it has of what this agent published.
    """
    here = os.uname().nodename
    pairs = cib.query(
        _RUNNER,
        f"//configuration/nodes/node[@uname='{here}']"
        f"//nvpair[starts-with(@name,'{_TOMBSTONE}') or starts-with(@name,'{_MARK}')"
        f" or starts-with(@name,'{MODE_ATTRIBUTE_PREFIX}') or @name='{VOTES_ATTRIBUTE}']"
        f"|//status/node_state[@uname='{here}']/transient_attributes"
        f"//nvpair[starts-with(@name,'{_POOL}')]",
    )
    if pairs is None:
        return {}
    return {pair.get("name", ""): pair.get("value", "") for pair in pairs.iter("nvpair")}


def _is_quorate() -> bool:
    try:
        return membership(_RUNNER).is_quorate
    except SanctlError:
        return False  # not known: the next monitor asks again


def _reap(usable: dict[str, str], noted: dict[str, str]) -> None:
    """Remove the files of devices that the cluster says are deleted on this node.

    Only with the cluster's own word for exactly these files (name and UUID), never by their
    absence from a list; only with quorum; and not while a loop device stands over one.
    """
    stones = {key: value for key, value in noted.items() if key.startswith(_TOMBSTONE)}
    # A node that was cut off changes only its own CIB. Each change makes that newer, and it could
    # outrank the others' when they meet, in which a copy has been marked meanwhile.
    if not stones or not _is_quorate():
        return
    for attribute, value in stones.items():
        device = attribute.removeprefix(_TOMBSTONE)
        uuid, _, pool_name = value.partition(" ")
        path = usable.get(pool_name)
        if path is None or len(uuid) != 32:
            continue
        files = pool_files.files_of(path, device, uuid)
        if any(loop.find(file) for file in files):
            journal.write(
                f"{device}: deleted, but still in use here; its files stay for now",
                priority=journal.WARNING,
                device=device,
                action="reap",
            )
            continue
        pool_files.delete(files)
        # Copies that go together fill each other once more, and mark each other for it, when the
        # command that drops them has cleared their marks already.
        if noted.get(outdated_marks.attribute_name(device)) == uuid:
            node_attributes.delete_permanent(
                _RUNNER, os.uname().nodename, outdated_marks.attribute_name(device), timeout_s=20.0
            )
        node_attributes.delete_permanent(_RUNNER, os.uname().nodename, attribute, timeout_s=20.0)
        failure_cleanup.remove_notes(device, failure_cleanup.START, failure_cleanup.MONITOR)
        journal.write(
            f"{device}: deleted, files removed from pool {pool_name}",
            priority=journal.NOTICE,
            device=device,
            action="reap",
            step="removed",
        )


def main(argv: list[str]) -> int:
    """Carry out one action and return its OCF exit code."""
    return ocf.run(
        "pool",
        argv,
        {"start": start, "stop": stop, "monitor": monitor, "validate-all": validate_all},
        METADATA,
    )
