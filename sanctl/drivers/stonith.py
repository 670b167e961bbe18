"""Talks to Pacemaker's fencer through stonith_admin(8): asks fencing devices, fences nodes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Protocol

from sanctl.errors import CommandError, Problem
from sanctl.system.runner import Runner

# A BMC that does not answer is given up by its agent after login_timeout, 5 s, tried twice.
_ASK_TIMEOUT_S = 40.0


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
        """See StonithPort.ask."""
        try:
            self._runner.run(["stonith_admin", "--query", device], timeout_s=_ASK_TIMEOUT_S)
        except CommandError as error:
            return error.problems[0].text
        return ""

    def fence(self, node: str, *, ways: int, timeout_s: float) -> None:
        """See StonithPort.fence."""
        # What it is told is for each device; the fencer takes a fifth more for all of them.
        each_s = timeout_s / (1.2 * max(1, ways))
        self._runner.run(
            ["stonith_admin", "--reboot", node, f"--timeout={each_s:.0f}s"],
            timeout_s=timeout_s + 10.0,
        )
