# SPDX-License-Identifier: GPL-2.0-or-later
"""Removing the layers: in which order, and although a step fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sanctl.errors import CommandError, Problem
from sanctl.lab.bench import path_config
from sanctl.lab.bench.path_layers import Layers
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import LabSpec


class Lab:
    """A laboratory that notes what is run where, and in which a machine may not answer."""

    def __init__(self, silent: str = "") -> None:
        self.silent = silent
        self.ran: list[tuple[str, str]] = []

    def _run(self, machine: str, script: str) -> None:
        self.ran.append((machine, script))
        if machine == self.silent:
            raise CommandError(Problem("SAN-CMD-003", f"{machine} does not answer"))

    def sh(self, machine: str, script: str, **_: Any) -> SimpleNamespace:
        self._run(machine, script)
        return SimpleNamespace(stdout="", status=1)

    def layers(self) -> Layers:
        host = SimpleNamespace(
            name="i1", iqn="iqn.host", logout=lambda iqn: self._run("i1", f"logout {iqn}")
        )
        bed = SimpleNamespace(storage=LabSpec().cluster_nodes[:2], sh=self.sh)
        return Layers(
            cast(
                "Scenario",
                SimpleNamespace(
                    bed=bed,
                    host=host,
                    exists=lambda _name: True,
                    delete=lambda name: self._run("cluster", f"delete {name}"),
                ),
            )
        )

    def place(self, text: str) -> int:
        """Return when something was run that has this text in it."""
        return next(at for at, (_, script) in enumerate(self.ran) if text in script)


def test_sessions_go_before_targets_and_targets_before_what_they_stand_on() -> None:
    lab = Lab()
    lab.layers().tear_down()
    export = path_config.BY_HAND_EXPORT
    order = [
        lab.place(what)
        for what in (
            f"delete {path_config.NAME}",
            f"logout {export.iqn}",
            f"rmdir {export.target}/tpgt_1",
            f"drbdsetup down {path_config.RESOURCE}",
        )
    ]
    assert order == sorted(order)
    down = {where for where, script in lab.ran if "drbdsetup down" in script}
    assert down == {"n1", "n2"}


@pytest.mark.parametrize("silent", ["cluster", "i1", "n2"])
def test_a_machine_that_does_not_answer_keeps_nothing_else_from_going(silent: str) -> None:
    lab = Lab(silent)
    with pytest.raises(CommandError, match=silent):
        lab.layers().tear_down()
    found = {(where, script) for where, script in lab.ran if "drbdsetup down" in script}
    assert ("n1", path_config.detach_script()) in found
    assert lab.place(f"rmdir {path_config.LIO_EXPORT.target}/tpgt_1")


def test_a_creation_that_goes_on_is_waited_for_before_the_device_is_looked_for() -> None:
    lab = Lab()
    lab.layers().tear_down()
    waited = lab.place(f"pgrep -f '[d]evice create {path_config.NAME}'")
    assert waited < lab.place(f"delete {path_config.NAME}")
