# SPDX-License-Identifier: GPL-2.0-or-later
"""With /run full a device is promoted, monitored, demoted and stopped; only a start needs room."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from sanctl.agents import device, ocf
from sanctl.agents.cache import read_cache
from sanctl.agents.fencing import hung_io_reboot, outdate, shared_marks
from sanctl.agents.handlers import before_resync_source, drbd_environment, fence_peer, unfence_peer
from sanctl.agents.publish import attrd_cache, replica_state
from sanctl.agents.replica import device_files, gate_size, resource_file
from sanctl.drivers import backing_device, drbd_kernel, drbdsetup, gate, lio, ram_cache
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import files
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer

PEER = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
GONE = PeerState("peer", "Connecting", "Unknown", "Off", "DUnknown", None)
SECONDARY = ResourceState("vol1", "Secondary", "no", "UpToDate", 1024, (GONE,), minor=3)
_QUORUM = "Quorate: Yes\n    Nodeid      Votes Name\n         1          1 n1\n         2  1 n2\n"
_CIB = (
    '<xpath-query><cib admin_epoch="1" epoch="7"/><node id="2" uname="n2"/>'
    '<instance_attributes id="nodes-2"/>'
    f'<nvpair id="x" name="sanctl-outdated-vol1" value="{"a" * 32}"/>'
    f'<primitive id="vol1"/><nvpair id="u" name="uuid" value="{"a" * 32}"/>'
    '<node_state uname="n2" crmd="9" join="member" expected="member"/></xpath-query>'
)


class Node:
    """A node whose replica of vol1 is up, as a standby; its parts follow what the agent does."""

    def __init__(self, fake: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake, self.gate, self.alua, self.is_up = fake, "error", "Standby", True
        fake.states["vol1"] = SECONDARY
        fake.answer = self._answer
        nothing = _nothing
        for module, name, value in (
            (gate, "gate_table", lambda _name: self.gate),
            (gate, "is_suspended", lambda _name: False),
            (gate, "exists_any", lambda _name: self.is_up),
            (gate, "size_bytes", lambda _name: 1 << 20),
            (gate, "open_gate", lambda *_, **__: setattr(self, "gate", "drbd3")),
            (gate, "close_gate", lambda *_, **__: setattr(self, "gate", "error")),
            (gate, "resume", nothing),
            (gate, "remove", lambda *_: setattr(self, "gate", "absent")),
            (lio, "alua_state", lambda *_: self.alua),
            (lio, "is_exported", lambda _name: self.is_up),
            (lio, "exists_any", lambda *_: self.is_up),
            (lio, "set_alua_state", self._set_alua),
            (lio, "remove", lambda *_: setattr(self, "alua", "absent")),
            (drbdsetup, "primary", lambda *_, **__: self._set_role("Primary")),
            (drbdsetup, "secondary", lambda *_, **__: self._set_role("Secondary")),
            (drbdsetup, "down", self._take_down),
            (drbd_kernel, "has_device", lambda _minor: self.is_up),
            (backing_device, "exists", lambda _name: False),
            (backing_device, "remove", nothing),
            (backing_device, "resume", nothing),
            (ram_cache, "exists_any", lambda _name: False),
            (ram_cache, "remove_parts", nothing),
            (read_cache, "published_fields", lambda *_: ""),
            (read_cache, "apply_policy", nothing),
            (read_cache, "update_unmap_offer", nothing),
            (hung_io_reboot, "check", nothing),
            (device_files, "detach", nothing),
            (device_files, "attached", lambda _device: []),
            (gate_size, "finish_growth", lambda *_: False),
        ):
            monkeypatch.setattr(module, name, value)

    def _answer(self, argv: Sequence[str]) -> Answer:
        if argv[0] == "corosync-quorumtool":
            return _QUORUM
        return _CIB if argv[0] == "cibadmin" and "--query" in argv else ""

    def _set_alua(self, _name: str, _minor: int, state: int) -> None:
        self.alua = "Active/Optimized" if state == lio.ACTIVE_OPTIMIZED else "Standby"

    def _set_role(self, role: str) -> None:
        found = self.fake.states["vol1"]
        assert found is not None
        self.fake.states["vol1"] = found._replace(role=role)

    def _take_down(self, *_: object) -> None:
        self.fake.states["vol1"] = None
        self.is_up = False


def _nothing(*_: object, **__: object) -> None:
    pass


@pytest.fixture
def node(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Node:
    fake_node.ask_for_monitor(monkeypatch)
    monkeypatch.setattr(drbd_environment, "resource", lambda: "vol1")
    monkeypatch.setattr(drbd_environment, "peer", lambda: "n2")
    made = Node(fake_node, monkeypatch)
    folder = fake_node.folder / "drbd.d"
    folder.mkdir()
    (folder / "vol1.res").write_text("    flexible-meta-disk /dev/loop1;\n")
    outdate.make_lock("vol1")
    return made


@pytest.fixture(params=["no byte", "no inode"])
def full(
    request: pytest.FixtureRequest, node: Node, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Node]:
    """The node with a full /run: tmpfs takes empty files while it has inodes."""
    opened = os.open

    def refuse(path: object, flags: int, *args: object, **options: object) -> int:
        is_new = flags & os.O_CREAT and str(path).startswith(str(node.fake.folder))
        if is_new and not files.exists(str(path)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return opened(path, flags, *args, **options)  # type: ignore[arg-type]

    def no_room(real: Callable[..., None]) -> Callable[..., None]:
        def write(path: str, text: str, **options: object) -> None:
            if text or request.param == "no inode":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            real(path, text, **options)

        return write

    for name in ("replace_on_tmpfs", "write_atomically"):
        wrapped = no_room(getattr(files, name))
        for module in _importers(name):
            monkeypatch.setattr(module, name, wrapped)
    if request.param == "no inode":
        monkeypatch.setattr(os, "open", refuse)
    yield node


def _importers(name: str) -> list[object]:
    return [
        module
        for path, module in sys.modules.items()
        if path.startswith("sanctl.") and hasattr(module, name)
    ]


def test_the_survivor_is_promoted_and_stays_so(full: Node) -> None:
    assert device.promote() == ocf.SUCCESS
    assert (full.gate, full.alua) == ("drbd3", "Active/Optimized")
    for _ in range(3):
        assert device.monitor() == ocf.RUNNING_PROMOTED


def test_what_it_is_gets_published(full: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attrd_cache, "_is_daemon", lambda _pid: True)
    full.fake.states["vol1"] = SECONDARY._replace(peers=(PEER,))
    assert device.promote() == ocf.SUCCESS
    assert not any("could not be published" in line for line in full.fake.journal)
    published = [" ".join(argv) for argv, _ in full.fake.calls if argv[0] == "attrd_updater"]
    assert any("sanctl.states" in line for line in published), full.fake.journal


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_promotion_leaves_its_score_to_the_monitor_where_its_handler_marked_the_peer(
    node: Node, is_marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that was outdated already may have no mark, and be in sync before the monitor."""
    monkeypatch.setattr(attrd_cache, "_is_daemon", lambda _pid: True)

    def primary(*_: object, **__: object) -> None:
        if is_marked:
            shared_marks._begun("vol1").remove()  # as the handler's end does
        node._set_role("Primary")

    monkeypatch.setattr(drbdsetup, "primary", primary)
    assert device.promote() == ocf.SUCCESS
    published = [argv for argv, _ in node.fake.calls if argv[0] == "attrd_updater"]
    assert bool(published) is not is_marked, published


def test_with_no_room_for_its_note_a_promotion_publishes(full: Node) -> None:
    assert device.promote() == ocf.SUCCESS
    assert any(argv[0] == "attrd_updater" for argv, _ in full.fake.calls)


def test_it_is_demoted_and_stopped(full: Node) -> None:
    assert device.promote() == ocf.SUCCESS
    assert device.demote() == ocf.SUCCESS
    assert device.stop() == ocf.SUCCESS
    assert not files.exists(resource_file.path_of("vol1"))


def test_a_frozen_primary_marks_its_peer(full: Node) -> None:
    full.fake.states["vol1"] = SECONDARY._replace(role="Primary", suspended="fencing")
    assert fence_peer.main() == 4
    assert any("--modify" in argv for argv, _ in full.fake.calls)


def test_marks_are_cleared_and_set_around_a_resync(full: Node) -> None:
    full.fake.states["vol1"] = SECONDARY._replace(role="Primary", peers=(PEER,))
    assert before_resync_source.main() == 0
    assert unfence_peer.main() in {0, 1}
    replica_state.publish(full.fake, device._device(), full.fake.states["vol1"])
