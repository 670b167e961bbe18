# SPDX-License-Identifier: GPL-2.0-or-later
"""Asks fencing devices, and has Pacemaker's fencer fence nodes (stonith_admin(8))."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Protocol

from sanctl.errors import CommandError, Problem
from sanctl.system.runner import Runner

# A BMC that does not answer is given up by its agent after login_timeout, 5 s, tried twice.
_ASK_TIMEOUT_S = 40.0
_AGENTS = "/usr/sbin"


class StonithPort(Protocol):
    """What the use-cases need of the fencer."""

    def registered(self) -> tuple[str, ...]:
        """Return the fencing devices that this node may use.

        Raises:
            CommandError: the fencer did not answer.
        """
        ...

    def ask(self, device: str) -> str:
        """Have this node ask a fencing device for its status; return why that failed, or nothing.

        Nothing is switched: it is what the device's monitor asks too.
        """
        ...

    def fence(self, node: str, *, ways: int, timeout_s: float) -> None:
        """Fence a node, and return when that is confirmed.

        Raises:
            CommandError: it is not known to have been fenced.
        """
        ...


class Stonith:
    """The fencer of this node."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def registered(self) -> tuple[str, ...]:
        """See StonithPort.registered."""
        # 1: there are none (Pacemaker 2.1).
        done = self._runner.run(
            ["stonith_admin", "--list-registered", "--output-as=xml"],
            timeout_s=_ASK_TIMEOUT_S,
            ok=(0, 1),
        )
        try:
            root = ET.fromstring(done.stdout)  # noqa: S314 - the fencer's own words
        except ET.ParseError as error:
            raise CommandError(
                Problem("SAN-FEN-001", f"what stonith_admin printed is not XML: {error}")
            ) from error
        return tuple(sorted(item.text or "" for item in root.iter("item")))

    def ask(self, device: str) -> str:
        """See StonithPort.ask.

        The agent is run, as the fencer runs it (FenceAgentAPI: options on standard input).
        `stonith_admin --query` asks only on the node that watches over the device: on all others it
        succeeds without a word, whatever has become of it (Pacemaker 3.0.0).
        """
        try:
            agent, options = self._of(device)
            words = "".join(f"{name}={value}\n" for name, value in options.items())
            self._runner.run(
                [f"{_AGENTS}/{agent}"], stdin=f"{words}action=monitor\n", timeout_s=_ASK_TIMEOUT_S
            )
        except CommandError as error:
            return error.problems[0].text
        return ""

    def _of(self, device: str) -> tuple[str, dict[str, str]]:
        """Return a fencing device's agent and the options that it is run with."""
        answer = self._runner.run(
            ["cibadmin", "--query", "--xpath", f"//primitive[@id='{device}']"],
            timeout_s=_ASK_TIMEOUT_S,
        )
        primitive = ET.fromstring(answer.stdout)  # noqa: S314 - the cluster's own CIB
        pairs = primitive.iterfind("instance_attributes/nvpair")
        options = {pair.get("name", ""): pair.get("value", "") for pair in pairs}
        # What is Pacemaker's own of them no agent knows.
        return primitive.get("type", ""), {
            name: value for name, value in options.items() if not name.startswith("pcmk_")
        }

    def fence(self, node: str, *, ways: int, timeout_s: float) -> None:
        """See StonithPort.fence."""
        # What it is told is for each device; the fencer takes a fifth more for all of them.
        each_s = timeout_s / (1.2 * max(1, ways))
        self._runner.run(
            ["stonith_admin", "--reboot", node, f"--timeout={each_s:.0f}"],
            timeout_s=timeout_s + 10.0,
        )
