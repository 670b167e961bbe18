# SPDX-License-Identifier: GPL-2.0-or-later
"""Other nodes, sites and repositories that answer, or say why not."""

from __future__ import annotations

from sanctl.errors import CommandError, ConfigError, Problem
from sanctl.model.backup import Repository
from sanctl.model.site import Site
from sanctl.model.topology import Node


class FakeRemoteServices:
    """What is asked is noted in `asked`; what is in `failures` fails as it says there."""

    def __init__(self) -> None:
        self.known: tuple[Repository, ...] = ()
        self.unreadable = ""
        self.failures: dict[str, Exception] = {}
        self.asked: list[str] = []

    def fail(self, what: str, code: str, hint: str = "") -> None:
        """Have what is asked so fail."""
        self.failures[what] = CommandError(Problem(code, f"{what} is silent", hint))

    def ask_for_points(self, peer: Node, here: Node) -> None:
        self._ask(f"points of {peer.name} from {here.name}")

    def ask_for_reservations(self, peer: Node, here: Node) -> None:
        self._ask(f"reservations of {peer.name} from {here.name}")

    def ask_site(self, site: Site) -> None:
        self._ask(f"site {site.name}")

    def repositories(self) -> tuple[Repository, ...]:
        if self.unreadable:
            raise ConfigError(Problem("SAN-CONF-001", self.unreadable))
        return self.known

    def ask_repository(self, repository: Repository) -> None:
        self._ask(f"repository {repository.name}")

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what in self.failures:
            raise self.failures[what]
