# SPDX-License-Identifier: GPL-2.0-or-later
"""The service answers requests of this cluster's nodes, many by one connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sanctl.agents import cluster_toml
from sanctl.agents.reservations import follower, listener
from sanctl.drivers import node_channel
from sanctl.drivers.node_channel import READ_RESERVATIONS, STORED, Channel
from sanctl.errors import CommandError
from tests.fakes.node import FakeNode


@pytest.fixture
def asked(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    del fake_node
    (tmp_path / "secret").write_text("of this cluster")
    monkeypatch.setattr(node_channel, "_SECRET", str(tmp_path / "secret"))
    found: list[str] = []

    def serve(channel: Channel, wanted: dict[str, str]) -> None:
        found.append(wanted["device"])
        channel.send(STORED, state=None)

    monkeypatch.setattr(follower, "serve", serve)
    return found


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], socket.socket]]:
    """Make connections to the listener."""
    topology = SimpleNamespace(node=lambda _: SimpleNamespace(sync="127.0.0.1"))
    monkeypatch.setattr(cluster_toml, "load_topology", lambda: topology)
    monkeypatch.setattr(node_channel, "RESERVATIONS_PORT", 0)
    with listener._socket() as listening, contextlib.ExitStack() as ends:

        def accept() -> None:
            with contextlib.suppress(OSError):
                listener._accept(listening)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        address = listening.getsockname()
        yield lambda: ends.enter_context(socket.create_connection(address))
        # Else the thread would accept from whatever gets the descriptor's number next.
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5.0)
        assert not thread.is_alive()


def test_a_connection_serves_many_requests(
    asked: list[str], connect: Callable[[], socket.socket]
) -> None:
    channel = Channel(connect(), "n2", is_leader=True)
    channel.greet(within_s=5.0)
    for name in ("vol1", "vol2"):
        channel.send(READ_RESERVATIONS, device=name)
        assert channel.receive(STORED, within_s=5.0)["state"] is None
    assert asked == ["vol1", "vol2"]
    channel.close()


def test_a_request_of_another_kind_ends_it(
    asked: list[str], connect: Callable[[], socket.socket]
) -> None:
    channel = Channel(connect(), "n2", is_leader=True)
    channel.greet(within_s=5.0)
    channel.send(node_channel.LOOK_FOR_DELETED, device="vol1")
    with pytest.raises(CommandError):
        channel.receive(STORED, within_s=5.0)
    assert asked == []


def test_nothing_is_done_for_who_lacks_the_clusters_secret(
    asked: list[str], connect: Callable[[], socket.socket]
) -> None:
    channel = Channel(connect(), "n2", is_leader=True)
    channel._key = b"another"
    channel.greet(within_s=5.0)
    channel.send(READ_RESERVATIONS, device="vol1")
    with pytest.raises(CommandError):
        channel.receive(STORED, within_s=5.0)
    assert asked == []


def test_a_connection_that_asks_nothing_does_not_keep_its_place(
    asked: list[str], connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    expect = Channel.expect

    def expected(channel: Channel, kinds: tuple[str, ...], *, within_s: float) -> dict[str, str]:
        if channel is not own:
            waits.append(within_s)
        return expect(channel, kinds, within_s=within_s)

    monkeypatch.setattr(Channel, "expect", expected)
    own = Channel(connect(), "n2", is_leader=True)
    own.greet(within_s=5.0)
    for _ in range(2):
        own.send(READ_RESERVATIONS, device="vol1")
        own.receive(STORED, within_s=5.0)
    assert waits[:2] == [listener._GREETING_S, listener._IDLE_S]
    assert asked == ["vol1", "vol1"]
    own.close()


def test_it_listens_before_the_address_is_there(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del asked
    monkeypatch.setattr(node_channel, "RESERVATIONS_PORT", 0)
    for address in ("192.0.2.1", "2001:db8::1"):
        node = SimpleNamespace(sync=address)
        topology = SimpleNamespace(node=lambda _, node=node: node)
        monkeypatch.setattr(cluster_toml, "load_topology", lambda topology=topology: topology)
        with listener._socket() as listening:
            assert listening.getsockname()[0] == address


def test_an_address_that_cannot_be_had_is_tried_again(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, fake_node: FakeNode
) -> None:
    del asked
    monkeypatch.setattr(cluster_toml, "load_topology", lambda: SimpleNamespace(node=lambda _: None))

    class EndError(Exception):
        pass

    def end() -> None:
        if fake_node.clock.passed_s > 3.0:
            raise EndError

    fake_node.clock.on_sleep = end
    with pytest.raises(EndError):
        listener.listen()
