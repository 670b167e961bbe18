# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from sanctl.drivers.node_facts import NodeFacts
from sanctl.drivers.pacemaker import Pacemaker, StaleCib
from sanctl.errors import CommandError, Problem, Refused, Unreachable
from tests.fakes.runner import FakeRunner


# The words and statuses are those of cibadmin 2.1.5 and 3.0.0.
@pytest.mark.parametrize(
    ("status", "stderr", "error"),
    [
        (103, "Call failed: Update was older than existing configuration", StaleCib),
        (1, "Call failed: Application of update diff failed, requesting full refresh", StaleCib),
        (106, "Call failed: Quorum required", Refused),
        (102, "Could not connect to CIB: Transport endpoint is not connected", Unreachable),
        (4, "Call failed: Permission denied", Unreachable),
        (78, "Call failed: Update does not conform to the configured schema", CommandError),
    ],
)
def test_how_a_patchset_can_fail(status: int, stderr: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Pacemaker(FakeRunner((status, "", stderr))).patch("<diff/>")


def test_a_patchset_is_sent_on_standard_input() -> None:
    runner = FakeRunner()
    Pacemaker(runner).patch("<diff/>")
    ((argv, stdin),) = runner.calls
    assert stdin == "<diff/>" and not any("diff" in word for word in argv)


@pytest.mark.parametrize("status", [102, 4, 77, 1, 124])
def test_no_answer_is_unreachable(status: int) -> None:
    for ask in ("query", "monitor"):
        with pytest.raises(Unreachable):
            getattr(Pacemaker(FakeRunner((status, "", ""))), ask)()


def test_a_node_without_pacemaker() -> None:
    runner = FakeRunner(CommandError(Problem("SAN-CMD-001", "cibadmin: no such program")))
    with pytest.raises(Unreachable):
        Pacemaker(runner).query()


def test_a_private_attribute_is_one_argument_and_never_deleted() -> None:
    runner = FakeRunner()
    Pacemaker(runner).publish_private("n2", "sanctl.copy.web.far", "a b")
    ((argv, _),) = runner.calls
    assert [*argv] == ["attrd_updater", "--node", "n2", "--name", "sanctl.copy.web.far",
                    "--update=a b", "--private"]  # fmt: skip


def test_units() -> None:
    runner = FakeRunner(
        "Id=a.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n\n"
        "Id=b.service\nLoadState=masked\nActiveState=inactive\nUnitFileState=masked\n"
    )
    units = NodeFacts(runner).units(("a.service", "b.service"))
    assert units is not None
    assert (units["a.service"].active, units["b.service"].load) == ("active", "masked")
    assert (units["a.service"].sub, units["b.service"].sub) == ("running", "")
    assert NodeFacts(FakeRunner((1, "", ""))).units(("a",)) is None


@pytest.mark.parametrize(("said", "meant"), [("yes\n", True), ("no\n", False), ("", None)])
def test_clock(said: str, meant: bool | None) -> None:
    assert NodeFacts(FakeRunner(said)).is_clock_synchronised() is meant
    assert NodeFacts(FakeRunner((1, "", ""))).is_clock_synchronised() is None
