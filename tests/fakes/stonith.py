# SPDX-License-Identifier: GPL-2.0-or-later
"""Fencing devices in memory: registered, silent or failing, and which nodes were fenced."""

from __future__ import annotations

from sanctl.errors import CommandError, Problem


class FakeStonith:
    """Fencing devices that answer, or say why not."""

    def __init__(self, usable: tuple[str, ...] = ("fence-n2", "fence-n3")) -> None:
        self.usable = usable
        self.silent: dict[str, str] = {}
        self.is_down = False
        self.fenced: list[str] = []
        self.fails = False

    def registered(self) -> tuple[str, ...]:
        if self.is_down:
            raise CommandError(Problem("SAN-CMD-002", "no answer"))
        return self.usable

    def ask(self, device: str) -> str:
        return self.silent.get(device, "")

    def fence(self, node: str, *, ways: int, timeout_s: float) -> None:
        if self.fails:
            raise CommandError(Problem("SAN-CMD-003", "No route to host"))
        self.fenced.append(node)
