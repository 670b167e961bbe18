# SPDX-License-Identifier: GPL-2.0-or-later
"""The pool agent says where nobody listens for other nodes' reservations."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from sanctl.agents.node import reservations_service as agent
from sanctl.drivers import node_channel
from sanctl.parse.published_state import parse_pool_usage
from sanctl.system import state_files
from tests.fakes.node import FakeNode

_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
#: One that listens for restore points, a connection of the service's, and its own.
_OTHER = "   0: 0102000A:1E77 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n"
_CONNECTION = "   1: 0102000A:1E76 0202000A:C350 01 00000000:00000000 00:00000000 00000000     0\n"
_OWN = "   2: 0102000A:1E76 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n"


@pytest.fixture
def sockets(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    del fake_node
    file = tmp_path / "tcp"
    monkeypatch.setattr(agent, "_SOCKETS", (f"{file}", f"{tmp_path}/tcp6"))
    return file


def test_a_service_that_stays_away_is_published_until_it_is_back(sockets: Path) -> None:
    sockets.write_text(_HEAD + _OTHER + _CONNECTION)
    assert agent.field() == agent.field() == "", "no device here has reservations"
    state_files.of_device("vm1", "reservations").write("{}")
    sockets.write_text(_HEAD + _OTHER + _OWN)
    assert agent.field() == ""
    sockets.write_text(_HEAD + _OTHER + _CONNECTION)
    assert agent.field() == "", "systemd starts it anew at once"
    assert agent.field() == agent.field() == " pr-service=down"
    assert parse_pool_usage("total=1 free=1 pr-service=down").is_reservations_service_down
    sockets.write_text(_HEAD + _OWN)
    assert agent.field() == ""
    sockets.write_text(_HEAD)
    Path(agent._SOCKETS[1]).write_text(_HEAD + _OWN.replace("0102000A", "0" * 32))
    assert agent.field() == agent.field() == ""


def test_it_looks_for_the_port_of_the_service() -> None:
    assert f"{node_channel.RESERVATIONS_PORT:04X}" == agent._PORT


def test_what_is_not_known_is_not_published(
    sockets: Path, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets.write_text(_HEAD)
    state_files.of_device("vm1", "reservations").write("{}")

    def fails(_path: str) -> str:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(agent, "read_text", fails)
    assert agent.field() == ""
    assert any("is not known" in line for line in fake_node.journal)
