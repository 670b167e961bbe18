# SPDX-License-Identifier: GPL-2.0-or-later
"""A node applies the wanted vote mode in its own files only, and publishes the present one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.node import votes
from sanctl.config import parse
from sanctl.drivers import corosync
from sanctl.errors import CommandError, Problem
from sanctl.model.topology import Strategy
from sanctl.model.vote_mode import MAJORITY_OF_NODES, NodeVotes, VoteMode, Votes, WantedVotes
from sanctl.parse.corosync import parse_conf_vote_mode
from sanctl.render.corosync import quorum_section
from sanctl.system import state_files
from tests.fakes.runner import FakeRunner
from tests.fakes.topology import CLUSTER_TOML
from tests.unit.config.test_strategy import HEARTBEAT, PAIR, QDEVICE

TWO = VoteMode(votes=Votes.TWO_NODE)
DEVICE = VoteMode(votes=Votes.QDEVICE, host="10.77.3.100")
_CMAP = {
    MAJORITY_OF_NODES: "quorum.provider (str) = corosync_votequorum\n",
    TWO: "quorum.provider (str) = corosync_votequorum\nquorum.two_node (u8) = 1\n",
    DEVICE: "quorum.provider (str) = corosync_votequorum\nquorum.device.model (str) = net\n"
    "quorum.device.net.host (str) = 10.77.3.100\n",
}


class Machine(FakeRunner):
    """A node's files and the tools the agent calls."""

    def __init__(self, folder: Path, tally: VoteMode, toml: str) -> None:
        super().__init__(self._answer)
        self.conf, self.toml = folder / "corosync.conf", folder / "cluster.toml"
        self.socket = folder / "qdevice.sock"
        self.conf.write_text(f"totem {{\n}}\n{quorum_section(tally)}logging {{\n}}\n")
        self.toml.write_text(f"# Written by Ansible for sanctl.\n{toml}")
        self.live = tally
        self.loaded: tuple[str, ...] = ()
        self.published: list[str] = []
        self.switched: list[str] = []
        self.is_silent = False
        self.is_qnetd_up = True

    def _answer(self, argv: Sequence[str]) -> str:
        out = ""
        match list(argv):
            case ["corosync-cmapctl", "quorum.", "nodelist."]:
                if self.is_silent:
                    raise CommandError(Problem("SAN-CMD-003", "no corosync"))
                out = _CMAP[self.live] + "".join(
                    f"nodelist.node.{k}.name (str) = {each}\n" for k, each in enumerate(self.loaded)
                )
            case ["corosync-quorumtool", "-s"]:
                flag = "Qdevice" if self.socket.exists() else ""
                vote = "A,V,NMW" if self.is_qnetd_up else "A,NV,NMW"
                out = (
                    f"Quorate:   Yes\nFlags:  Quorate {flag}\n"
                    f"Nodeid Votes Qdevice Name\n1 1 {vote if flag else 'NR'} n1 (local)\n"
                )
            case ["systemctl", verb, *_]:
                assert parse_conf_vote_mode(self.conf.read_text()) == DEVICE, "stopped too late"
                self.switched.append(verb)
                if verb == "start":
                    self.socket.touch()
                else:
                    self.socket.unlink()
            case ["attrd_updater", *rest]:
                self.published.append(rest[-1].removeprefix("--update="))
            case _:
                raise AssertionError(argv)
        return out

    def cast(self, wish: WantedVotes | None = None) -> None:
        votes.apply(self, str(wish) if wish else "")

    @property
    def file(self) -> VoteMode | None:
        return parse_conf_vote_mode(self.conf.read_text())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path, DEVICE, PAIR + QDEVICE)
    monkeypatch.setattr(corosync, "CONF", str(made.conf))
    monkeypatch.setattr(votes, "_TOML", str(made.toml))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(votes, "_QDEVICE_SOCKET", str(made.socket))
    return made


def test_without_a_wanted_mode_the_present_one_is_published_once(machine: Machine) -> None:
    before = machine.conf.read_text(), machine.toml.read_text()
    machine.cast()
    machine.cast()
    assert (machine.conf.read_text(), machine.toml.read_text()) == before
    # The device's daemon is started as corosync counts with one; its vote is told when it is there.
    assert machine.switched == ["start"]
    assert [NodeVotes.parse(text).is_device_voting for text in machine.published] == [False, True]
    machine.cast()
    assert len(machine.published) == 2
    votes.invalidate_published()
    machine.cast()
    assert len(machine.published) == 3


def test_a_device_that_is_registered_and_silent_is_published_as_silent(machine: Machine) -> None:
    machine.socket.touch()
    machine.is_qnetd_up = False
    machine.cast()
    machine.is_qnetd_up = True
    machine.cast()
    assert [NodeVotes.parse(text).is_device_voting for text in machine.published] == [False, True]


def test_its_list_of_nodes_is_published_and_where_corosync_has_another_one(
    machine: Machine,
) -> None:
    nodes = "".join(f"    node {{\n        name: {each}\n    }}\n" for each in ("n1", "n2"))
    machine.conf.write_text(f"{machine.conf.read_text()}nodelist {{\n{nodes}}}\n")
    machine.loaded = ("n1", "n2")
    machine.cast()
    machine.loaded = ("n1", "n2", "n3")
    machine.cast()
    machine.cast()
    machine.loaded = ("n1",)
    machine.cast()
    machine.loaded = ()
    machine.cast()
    same, more, less, unknown = map(NodeVotes.parse, machine.published)
    assert "loaded" not in machine.published[0], "it is said where it differs"
    assert same.written == same.loaded == ("n1", "n2")
    assert (same.unwritten, same.unloaded) == ((), ())
    assert (more.unwritten, more.unloaded) == (("n3",), ())
    assert (less.unwritten, less.unloaded) == ((), ("n2",))
    assert (unknown.unwritten, unknown.unloaded) == ((), ())
    assert [str(each) for each in (same, more, less, unknown)] == machine.published
    assert NodeVotes(loaded=("n1",)).unwritten == (), "a file that cannot be read lacks nobody"


def test_qdevice_is_stopped_before_the_file_is_written(machine: Machine) -> None:
    machine.cast()
    machine.cast(WantedVotes(vote_mode=MAJORITY_OF_NODES, strategy="heartbeat"))
    assert machine.switched == ["start", "stop"]
    assert machine.file == MAJORITY_OF_NODES
    assert parse(machine.toml.read_text()).strategy is Strategy.HEARTBEAT
    assert machine.toml.read_text().startswith("# Written by Ansible")
    last = NodeVotes.parse(machine.published[-1])
    assert (last.file, last.live, last.strategy) == (MAJORITY_OF_NODES, DEVICE, "heartbeat")
    # Not started again while the running corosync still has the device.
    machine.cast(WantedVotes(vote_mode=MAJORITY_OF_NODES, strategy="heartbeat"))
    assert machine.switched == ["start", "stop"]
    machine.live = MAJORITY_OF_NODES
    machine.cast(WantedVotes(vote_mode=TWO, strategy="heartbeat"))
    assert machine.file == TWO
    assert machine.conf.read_text().endswith("logging {\n}\n")


def test_a_left_over_qdevice_daemon_is_stopped(machine: Machine) -> None:
    machine.socket.touch()
    machine.live = MAJORITY_OF_NODES
    machine.cast()
    assert machine.switched == ["stop"]


def test_nodes_that_a_rollout_has_just_written_are_not_undone(machine: Machine) -> None:
    """From heartbeat to a witness: the file already has a witness, the attribute does not yet."""
    machine.toml.write_text(CLUSTER_TOML)
    machine.conf.write_text(machine.conf.read_text().replace(quorum_section(DEVICE), ""))
    machine.conf.write_text(machine.conf.read_text() + quorum_section(TWO))
    machine.live = TWO
    machine.cast(WantedVotes(vote_mode=TWO, strategy="heartbeat"))
    assert machine.toml.read_text() == CLUSTER_TOML


def test_failures_are_logged_and_nothing_more(machine: Machine) -> None:
    machine.is_silent = True
    votes.apply_or_log(machine, "")
    assert machine.published == []
    machine.toml.write_text(HEARTBEAT.replace("[pools.main]", "["))
    machine.is_silent = False
    votes.apply_or_log(machine, str(WantedVotes(vote_mode=DEVICE, strategy="heartbeat")))
    assert machine.published == []
