# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages between nodes: only those of the same cluster, each once, in order."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.drivers import node_channel
from sanctl.drivers.node_channel import Channel
from sanctl.errors import CommandError

_OPEN: list[socket.socket] = []


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "secret"
    path.write_text("of this cluster\n")
    monkeypatch.setattr(node_channel, "_SECRET", str(path))
    yield path
    while _OPEN:
        _OPEN.pop().close()


def pair() -> tuple[Channel, Channel, socket.socket]:
    ours, theirs = socket.socketpair()
    _OPEN.extend((ours, theirs))
    leader, follower = Channel(ours, "n2", is_leader=True), Channel(theirs, "n1", is_leader=False)
    return leader, follower, ours


def greeted() -> tuple[Channel, Channel, socket.socket]:
    leader, follower, raw = pair()
    greeting = threading.Thread(target=follower.greet, kwargs={"within_s": 5.0})
    greeting.start()
    leader.greet(within_s=5.0)
    greeting.join()
    return leader, follower, raw


def test_messages_arrive_in_order(secret: Path) -> None:
    del secret
    leader, follower, _ = greeted()
    leader.send("prepare", device="web")
    leader.send("copy")
    assert follower.receive("prepare", within_s=5.0)["device"] == "web"
    follower.receive("copy", within_s=5.0)
    follower.send("refused", code="SAN-SNAP-002", text="too many extents")
    with pytest.raises(CommandError, match="SAN-SNAP-002: n2: too many extents"):
        leader.receive("copied", within_s=5.0)


def test_a_message_is_good_once_and_in_its_direction(secret: Path) -> None:
    del secret
    leader, follower, raw = greeted()
    leader.send("copy")
    line = follower._line(10**9)
    for again in range(2):
        raw.sendall(line + b"\n")
        if again == 0:
            follower.receive("copy", within_s=5.0)
            continue
        with pytest.raises(CommandError, match="secret"):
            follower.receive("copy", within_s=5.0)
    follower._write(line.decode())
    with pytest.raises(CommandError, match="secret"):
        leader.receive("copy", within_s=5.0)


def test_another_cluster_is_refused(secret: Path) -> None:
    leader, follower, _ = pair()
    secret.write_text("of another\n")
    stranger = Channel(leader._socket, "n2", is_leader=True)
    greeting = threading.Thread(target=follower.greet, kwargs={"within_s": 5.0})
    greeting.start()
    stranger.greet(within_s=5.0)
    greeting.join()
    stranger.send("prepare")
    with pytest.raises(CommandError, match="secret"):
        follower.receive("prepare", within_s=5.0)


@pytest.mark.parametrize(
    "line", ["", "x", "[]", "{}", "[1, 2]", '["a", "b"]', json.dumps(["{}", "é"]), "z" * 9000]
)
def test_nonsense_is_an_error(secret: Path, line: str) -> None:
    del secret
    _, follower, raw = greeted()
    raw.sendall(f"{line}\n".encode())
    with pytest.raises(CommandError):
        follower.receive("prepare", within_s=1.0)


def test_silence_and_an_end_are_errors(secret: Path) -> None:
    del secret
    leader, follower, raw = greeted()
    with pytest.raises(CommandError, match="did not answer in time"):
        follower.receive("prepare", within_s=0.01)
    raw.close()
    with pytest.raises(CommandError, match="SAN-SNAP-004"):
        follower.receive("prepare", within_s=1.0)
    del leader
