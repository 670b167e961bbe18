# SPDX-License-Identifier: GPL-2.0-or-later
"""What the program of sanctl-points@.service does for another node's request, and for whom."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.agents import pool
from sanctl.agents.handlers import point_peer
from sanctl.agents.points import follower
from sanctl.drivers import node_channel
from sanctl.errors import CommandError
from tests.fakes.node import FakeNode


@pytest.fixture
def done(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    del fake_node
    (tmp_path / "secret").write_text("of this cluster")
    monkeypatch.setattr(node_channel, "_SECRET", str(tmp_path / "secret"))
    found: list[str] = []
    monkeypatch.setattr(pool, "delete_files_of_deleted_devices", lambda: found.append("looked"))
    monkeypatch.setattr(follower, "serve", lambda _, wanted: found.append(wanted["device"]))
    return found


def serve(monkeypatch: pytest.MonkeyPatch, request: Callable[[str], None]) -> None:
    """Serve one connection on a port of its own, which `request` makes to this address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setattr(node_channel, "PORT", listening.getsockname()[1])
        asking = threading.Thread(target=request, args=("127.0.0.1",))
        asking.start()
        connection, _ = listening.accept()
        with connection:
            monkeypatch.setattr(sys, "stdin", connection)
            assert point_peer.main() == 0
        asking.join()


def hint(address: str) -> None:
    node_channel.ask_to_look_for_deleted(address, "n2", "127.0.0.1")


def test_a_hint_has_the_pool_agent_look_for_deleted_devices(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, hint)
    assert done == ["looked"]


def test_a_part_in_a_restore_point_is_handed_on(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(address: str) -> None:
        channel = node_channel.connect(address, "n2", "127.0.0.1", within_s=5.0)
        channel.greet(within_s=5.0)
        channel.send("prepare", device="vol1")
        channel.close()

    serve(monkeypatch, prepare)
    assert done == ["vol1"]


def test_nothing_is_done_for_who_lacks_the_clusters_secret(
    done: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class OtherCluster(node_channel.Channel):
        def greet(self, *, within_s: float) -> None:
            self._key = b"another"
            super().greet(within_s=within_s)

    def forged(address: str) -> None:
        channel = OtherCluster(
            socket.create_connection((address, node_channel.PORT)), "n2", is_leader=True
        )
        channel.greet(within_s=5.0)
        channel.send(node_channel.LOOK_FOR_DELETED)
        channel.close()

    serve(monkeypatch, forged)
    assert done == []


def test_a_node_that_cannot_be_asked_is_an_error_of_the_hint(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        monkeypatch.setattr(node_channel, "PORT", once.getsockname()[1])
    with pytest.raises(CommandError):
        hint("127.0.0.1")
    assert done == []
