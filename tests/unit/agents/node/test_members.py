# SPDX-License-Identifier: GPL-2.0-or-later
"""A node takes the member that it is told to out of its own corosync.conf, with quorum only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.node import members
from sanctl.drivers import corosync
from sanctl.parse.corosync import member_span, parse_cmap_members
from tests.fakes.runner import Answer, FakeRunner

NODE = (
    "    node {{\n        name: {0}\n        nodeid: {1}\n        ring0_addr: 10.77.3.{1}\n    }}\n"
)
HEAD, TAIL = "totem {\n    version: 2\n}\n\nnodelist {\n", "}\n\nquorum {\n}\n"
CONF = HEAD + NODE.format("n1", 1) + NODE.format("n2", 2) + NODE.format("n3", 3) + TAIL


class Tools(FakeRunner):
    """Corosync's and Pacemaker's tools; whether the partition has quorum."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.is_quorate = True
        self.members: tuple[str, ...] = ("n1", "n3")
        self.is_withdrawn = False

    def _answer(self, argv: Sequence[str]) -> Answer:
        if argv[:2] == ["cibadmin", "--query"]:
            assert "@name='sanctl.dropped-member'" in argv[-1] and "@value='n2'" in argv[-1]
            return (105, "", "No such device or address") if self.is_withdrawn else "<nvpair/>"
        if "quorumtool" not in argv[0]:
            return ""
        rows = "".join(f" {node[1:]} 1 {node}\n" for node in self.members)
        return f"Quorate: {'Yes' if self.is_quorate else 'No'}\nNodeid Votes Name\n{rows}"

    @property
    def deletions(self) -> list[str]:
        return [argv[4] for argv, _ in self.calls if argv[0] == "crm_attribute"]


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "corosync.conf"
    path.write_text(CONF)
    monkeypatch.setattr(corosync, "CONF", str(path))
    return path


def test_the_member_goes_and_the_order_after_it(conf: Path) -> None:
    tools = Tools()
    members.drop_or_log(tools, "n2")
    assert conf.read_text() == HEAD + NODE.format("n1", 1) + NODE.format("n3", 3) + TAIL
    assert tools.deletions == ["sanctl.dropped-member"]


def test_after_a_kill_in_between_the_order_goes(conf: Path) -> None:
    for _ in range(2):
        tools = Tools()
        members.drop_or_log(tools, "n2")
        assert tools.deletions == ["sanctl.dropped-member"]
    assert "n2" not in conf.read_text()


def test_without_quorum_nothing_is_written(conf: Path) -> None:
    tools = Tools()
    tools.is_quorate = False
    members.drop_or_log(tools, "n2")
    assert (conf.read_text(), tools.deletions) == (CONF, [])


def test_a_member_that_is_back_stays_and_the_order_goes(conf: Path) -> None:
    """The command has given up, and the node was started since."""
    tools = Tools()
    tools.members = ("n1", "n2", "n3")
    members.drop_or_log(tools, "n2")
    assert (conf.read_text(), tools.deletions) == (CONF, ["sanctl.dropped-member"])


def test_an_order_that_was_withdrawn_meanwhile_is_not_carried_out(conf: Path) -> None:
    tools = Tools()
    tools.is_withdrawn = True
    members.drop_or_log(tools, "n2")
    assert (conf.read_text(), tools.deletions) == (CONF, [])


@pytest.mark.parametrize("order", ["", os.uname().nodename])
def test_a_node_does_not_drop_itself(conf: Path, order: str) -> None:
    tools = Tools()
    members.drop_or_log(tools, order)
    assert (conf.read_text(), tools.calls) == (CONF, [])


@pytest.mark.parametrize(
    "text", ["", "nodelist {\n", CONF + CONF, HEAD + 2 * NODE.format("n2", 2) + TAIL]
)
def test_a_file_that_is_not_understood_stays_and_so_does_the_order(conf: Path, text: str) -> None:
    conf.write_text(text)
    tools = Tools()
    members.drop_or_log(tools, "n2")
    assert (conf.read_text(), tools.deletions) == (text, [])


def test_a_name_that_begins_alike_is_another_node() -> None:
    text = HEAD + NODE.format("n10", 10) + NODE.format("n1", 1) + TAIL
    span = member_span(text, "n1")
    assert span is not None
    assert text[span[0] : span[1]] == NODE.format("n1", 1)
    assert member_span(text, "n") is None


def test_the_running_list_is_read() -> None:
    text = (
        "nodelist.local_node_pos (u32) = 0\nnodelist.node.0.name (str) = n1\n"
        "nodelist.node.0.nodeid (u32) = 1\nnodelist.node.1.name (str) = n3\n"
    )
    assert parse_cmap_members(text) == {"n1", "n3"}
