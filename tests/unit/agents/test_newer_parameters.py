# SPDX-License-Identifier: GPL-2.0-or-later
"""What a newer release has written: a start may be refused, and a stop never fails by it.

A node is fenced for a stop that fails, and again after each boot, as the cluster stops what it
finds there.
"""

from __future__ import annotations

import contextlib
import os
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents import cluster_toml, device, device_role, ocf
from sanctl.agents.connections import isolation, peers, start_connection
from sanctl.agents.device_metadata import METADATA
from sanctl.agents.fencing import joined_peers
from sanctl.agents.node import failure_cleanup
from sanctl.agents.recovery import fs_shutdown, pool_remount
from sanctl.agents.replica import (
    access_list,
    device_files,
    kernel_modules,
    listed_portals,
    peer_contact,
    resource_file,
)
from sanctl.agents.reservations import hooks
from sanctl.agents.restore import closure
from sanctl.agents.sync import settling
from sanctl.drivers import gate, lio, page_cache, pool_files, pool_mount
from sanctl.drivers.page_cache import WriteState
from sanctl.errors import CommandError, ConfigError, Problem, SanctlError
from sanctl.model.reservation import Reservations
from sanctl.model.topology import Topology
from sanctl.system import state_files
from tests.unit.agents.test_no_room import SECONDARY, Node, node

__all__ = ["node"]

OPTIONAL = [
    each.get("name", "")
    for each in ET.fromstring(METADATA).iter("parameter")
    if each.get("required") != "1"
]
WORDS = ("later", "later=2,x=/y", "n1 later:3 {}", "9" * 40, "\u00e9")
#: A clone's file would be an empty one where its origin is not known.
REFUSED_AT_START = {"origin": "SAN-CLONE-007"}
#: What the parameter is for.
REFUSED_AT_PROMOTION = {"needs": "SAN-AGENT-020"}


@pytest.fixture
def stopped(node: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    """The node with the replica's files, before a start; its kernel takes all that is asked."""
    files = node.fake.attach_files(device._device())
    for path in files.data, files.metadata:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
    node.is_up, node.gate, node.alua = False, "absent", "absent"
    node.fake.states["vol1"] = None

    def bring_up(*_: object, **__: object) -> None:
        _bring_up(node)

    for module, name, value in (
        (pool_remount, "usable_for_start", lambda *_: contextlib.nullcontext()),
        (fs_shutdown, "trust_only_replica", lambda *_: None),
        (pool_files, "check_marker", lambda *_: None),
        (kernel_modules, "load", lambda _runner: None),
        (device_files, "prepare", lambda *_: files),
        (peer_contact, "wait_until_settled", lambda *_: node.fake.states["vol1"]),
        (isolation, "bring_up", bring_up),
        (isolation, "first_peer", lambda *_: None),
        (start_connection, "choose", lambda *_, **__: start_connection.Connects.NOW),
        (settling, "prepare", lambda *_: None),
        (page_cache, "observe", lambda _path: WriteState(is_buffered=False, is_synchronous=False)),
        (page_cache, "set_synchronous", lambda *_, **__: None),
        (page_cache, "set_buffered", lambda *_, **__: False),
        (page_cache, "drain", lambda _device: None),
        (page_cache, "flush", lambda _path, **_: None),
        (gate, "is_complete", lambda _name: True),
        (lio, "create", lambda *_: []),
        (access_list, "log_refused", lambda *_: None),
        (access_list, "update", lambda *_: False),
        (listed_portals, "list_anew", lambda _device: None),
        # Any word is on: what is in force then is in tests/unit/agents/reservations.
        (hooks, "at_start", lambda *_: Reservations()),
        (hooks, "check_before_promotion", lambda *_, **__: None),
        (hooks, "promoting", lambda *_, **__: contextlib.nullcontext()),
    ):
        monkeypatch.setattr(module, name, value)
    return node


def _bring_up(node: Node) -> None:
    node.is_up, node.gate, node.alua = True, "error", "Standby"
    node.fake.states["vol1"] = SECONDARY


def test_the_table_has_the_parameters_of_the_agent() -> None:
    assert {"cache", "sync", "hosts", "verify", "point", "restore", "awaits", "released"} <= set(
        OPTIONAL
    )


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("parameter", OPTIONAL)
def test_started_promoted_demoted_and_stopped(
    parameter: str, word: str, stopped: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"OCF_RESKEY_{parameter}", word)
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "0")
    if parameter in REFUSED_AT_START:
        with pytest.raises(CommandError, match=REFUSED_AT_START[parameter]):
            device.start()
        # As the newer release has left it, which was on this node before.
        _bring_up(stopped)
    else:
        assert device.start() == ocf.SUCCESS
        if parameter in REFUSED_AT_PROMOTION:
            with pytest.raises(CommandError, match=REFUSED_AT_PROMOTION[parameter]):
                device.promote()
        else:
            assert device.promote() == ocf.SUCCESS
        assert device.demote() == ocf.SUCCESS
    assert device.stop() == ocf.SUCCESS
    assert not stopped.is_up
    assert not os.path.exists(stopped.fake.folder / "devices/vol1")


def test_a_start_in_a_pool_that_is_mounted_read_only_is_tried_again(
    stopped: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop device was refused, and the failure stayed until an operator cleaned it up."""
    listed = stopped.fake.folder / "mountinfo"
    monkeypatch.setattr(pool_mount, "MOUNTS", str(listed))
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "0")
    listed.write_text(f"41 20 253:0 / {stopped.fake.folder}/pool ro - ext4 /dev/sdb ro\n")
    with pytest.raises(CommandError, match="SAN-POOL-036"):
        device.start()
    assert state_files.node_suffixes("failed-start") == ["vol1"]
    listed.write_text(f"41 20 253:0 / {stopped.fake.folder}/pool rw - ext4 /dev/sdb rw\n")
    assert device.start() == ocf.SUCCESS
    assert state_files.node_suffixes("failed-start") == []


def test_what_serves_is_promoted_once_more_with_a_change(
    stopped: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pacemaker does that with each change of parameters; a failure would demote it."""
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "0")
    assert device.start() == device.promote() == ocf.SUCCESS
    monkeypatch.setenv("OCF_RESKEY_needs", "later")
    assert device.promote() == ocf.SUCCESS
    assert stopped.alua == "Active/Optimized"
    assert device.demote() == ocf.SUCCESS
    with pytest.raises(CommandError, match="SAN-AGENT-020"):
        device.promote()


@pytest.mark.parametrize("is_read", [True, False])
def test_a_start_without_its_place_in_cluster_toml_is_tried_again_once_it_has_one(
    stopped: Node, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollout may write the file before the release that knows it, or after the way back."""
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "0")

    def load() -> Topology:
        if not is_read:
            raise ConfigError(Problem("SAN-CONF-002", "cluster.toml: schema: 2 is not known"))
        return replace(stopped.fake.topology, pools=())

    def resolved(usable: set[str]) -> list[str]:
        note = state_files.of_node("failed-start.vol1")
        if note.exists():
            os.utime(note.path, (0, 0))
        return [each.device for each in failure_cleanup.resolved_failures(stopped.fake, usable)]

    with monkeypatch.context() as within:
        within.setattr(cluster_toml, "load_topology", load)
        with pytest.raises(SanctlError, match=r"SAN-(CONF-002|AGENT-004)"):
            device.start()
    assert resolved(set()) == [] and resolved({"main"}) == ["vol1"]
    assert device.start() == ocf.SUCCESS
    assert resolved({"main"}) == []


@pytest.mark.parametrize("is_room_made", [True, False])
def test_a_disk_that_drbd_refuses_is_tried_once_more_where_room_was_made(
    stopped: Node, monkeypatch: pytest.MonkeyPatch, *, is_room_made: bool
) -> None:
    """The bitmap of a replica that was dropped while the node was away left none for a new one."""
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "0")
    bring_up, tried = isolation.bring_up, []

    def refused_once(*given: Any, **options: Any) -> None:
        tried.append("tried")
        if len(tried) == 1:
            raise CommandError(Problem("SAN-CMD-003", "Not enough free bitmap slots"))
        bring_up(*given, **options)

    monkeypatch.setattr(isolation, "bring_up", refused_once)
    monkeypatch.setattr(peers, "make_room", lambda *_: is_room_made)
    if is_room_made:
        assert device.start() == ocf.SUCCESS and stopped.is_up
    else:
        with pytest.raises(CommandError, match="bitmap slots"):
            device.start()
    assert len(tried) == 1 + is_room_made


@pytest.mark.parametrize("is_up", [True, False])
def test_a_start_gives_a_replica_that_is_up_no_other_activity_log(
    stopped: Node, monkeypatch: pytest.MonkeyPatch, *, is_up: bool
) -> None:
    """As after an action that was interrupted: DRBD may refuse it, and all options with it."""
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "0")
    monkeypatch.setattr(resource_file, "al_extents", lambda _name: 67)
    given: list[int | None] = []

    def write(*_: object, al_extents: int | None, **__: object) -> None:
        given.append(al_extents)

    monkeypatch.setattr(resource_file, "write", write)
    stopped.fake.states["vol1"] = SECONDARY if is_up else None
    assert device.start() == ocf.SUCCESS
    assert given == [67 if is_up else None]


def test_a_start_that_cannot_note_what_a_device_was_held_as_is_tried_again(
    stopped: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a full pool, until there is room."""
    assert not stopped.is_up

    def full(*_: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(closure, "at_start", full)
        with pytest.raises(OSError, match="no space"):
            device.start()
    assert state_files.of_node("failed-start.vol1").exists()
    assert device.start() == ocf.SUCCESS
    assert not state_files.of_node("failed-start.vol1").exists()


def test_a_start_notes_who_has_joined_before_the_replica_connects(
    stopped: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its peer may die right after that, and a Primary that is noted nowhere is taken over by none.

    Where the cluster does not answer the start goes on.
    """
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "0")
    bring_up, done = isolation.bring_up, list[object]()

    def ask(_runner: object, others: list[str]) -> None:
        done.append(others)
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    def noted(*given: Any, **options: Any) -> None:
        done.append("connects")
        bring_up(*given, **options)

    monkeypatch.setattr(joined_peers, "record_others", ask)
    monkeypatch.setattr(isolation, "bring_up", noted)
    assert device.start() == ocf.SUCCESS
    assert done == [["n2"], "connects"]


def test_a_demotion_that_waits_for_frozen_io_is_noted(
    stopped: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_interval", "0")
    _bring_up(stopped)

    def frozen(*_: object) -> None:
        raise CommandError(Problem("SAN-DM-002", "no answer within 57 s"))

    monkeypatch.setattr(device_role, "demote", frozen)
    with pytest.raises(CommandError, match="57 s"):
        device.demote()
    assert state_files.node_suffixes("failed-demote") == ["vol1"]
