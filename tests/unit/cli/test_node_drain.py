# SPDX-License-Identifier: GPL-2.0-or-later
"""What a drain says to an operator who cuts the node's power next."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from contextlib import nullcontext
from pathlib import Path

import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.errors import ExitStatus
from sanctl.ops.session import Session
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter


class Environment:
    """A cluster whose node n2 has just been filled, in which n1 serves."""

    def __init__(self) -> None:
        self.pacemaker = FakePacemaker(golden="one-device")
        constraints = self.pacemaker.root.find("configuration/constraints")
        assert constraints is not None
        ET.SubElement(constraints, "rsc_location", {"id": "drained-serves-nothing"})
        self.pacemaker.settling = {"n2"}
        self.pacemaker.tick()
        self.pacemaker.tick()

    def session(self) -> nullcontext[Session]:
        clock = FakeClock(self.pacemaker.tick)
        return nullcontext(Session(self.pacemaker, clock, FakeReporter()))

    def logged(self, *_: object, **__: object) -> nullcontext[None]:
        return nullcontext()


def test_it_names_what_was_not_flushed_on_another_node_in_its_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = Environment()
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: fake)

    def drain(*options: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["sanctl", "node", "drain", "n1", *options])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), capsys.readouterr().out

    status, out = drain("--timeout", "10")
    assert status == ExitStatus.NOT_CONVERGED
    assert "device vm1 is served by n2" in out
    assert "device vm1 is not flushed" in out and "sanctl-resync" in out
    assert "serves no device" not in out
    status, out = drain("--timeout", "10", "--output", "json")
    found = json.loads(out)["data"]
    assert (status, found["unflushed"]) == (ExitStatus.NOT_CONVERGED, ["vm1"])
    fake.pacemaker.settling = set()
    fake.pacemaker.tick()
    status, out = drain("--output", "json")
    assert (status, json.loads(out)["data"]["unflushed"]) == (ExitStatus.OK, [])


def test_a_device_that_stays_on_the_node_has_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`node drain && poweroff` took away what no other node could serve."""
    fake = Environment()
    fake.pacemaker.crash("n2")
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: fake)
    words = ["sanctl", "node", "drain", "n1", "--timeout", "10"]
    for argv, said in (
        (words, "device vm1 stops with n1: n2 is offline"),
        ([*words, "--output", "json"], '"status": "partial"'),
    ):
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as stop:
            main()
        assert int(stop.value.code or 0) == ExitStatus.PARTIAL
        assert said in capsys.readouterr().out


def test_the_unit_that_drains_at_a_stop_does_not_fail_by_that_status() -> None:
    """A unit that fails while everything is stopped in order would be taken for a fault."""
    role = Path(__file__).parents[3] / "ansible" / "roles" / "sanctl_software"
    unit = (role / "templates" / "sanctl-drain.service.j2").read_text()
    assert "\nExecStop=-/usr/sbin/sanctl node drain %H" in unit
