# SPDX-License-Identifier: GPL-2.0-or-later
"""Fencing devices in memory: registered, silent or failing, and which nodes were fenced."""

from __future__ import annotations

from collections.abc import Callable

from sanctl.errors import CommandError, Problem


class FakeStonith:
    """Fencing devices that answer, or say why not."""

    def __init__(self, usable: tuple[str, ...] = ("fence-n2", "fence-n3")) -> None:
        self.usable = usable
        self.silent: dict[str, str] = {}
        self.is_down = False
        self.fenced: list[str] = []
        self.fails = False
        self.confirmed: list[str] = []
        self.on_confirm: Callable[[str], None] = lambda _: None

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

    def confirm_off(self, node: str) -> None:
        if self.fails:
            raise CommandError(Problem("SAN-CMD-003", "No such device or address"))
        self.confirmed.append(node)
        self.on_confirm(node)
