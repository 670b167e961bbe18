# SPDX-License-Identifier: GPL-2.0-or-later
"""Asks what this node needs of other servers: other nodes, second sites, repositories.

Each is asked as the task that needs it would ask. Nothing is changed there but what is due anyway.
"""

from __future__ import annotations

from typing import Protocol

from sanctl.config import backups
from sanctl.drivers import node_channel
from sanctl.drivers.borg import Borg
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import ConfigError, Problem
from sanctl.model.backup import Repository
from sanctl.model.site import Site
from sanctl.model.topology import Node
from sanctl.system.files import read_text
from sanctl.system.runner import Runner

_NODE_S = 10.0
#: A repository that another backup has answers by that.
_LOCK_S = 5


class RemoteServicesPort(Protocol):
    """What `sanctl doctor` asks other servers; each method returns once there is a right answer."""

    def ask_for_points(self, peer: Node, here: Node) -> None:
        """Ask a node for its part in restore points.

        Raises:
            CommandError: it does not answer.
        """
        ...

    def ask_for_reservations(self, peer: Node, here: Node) -> None:
        """Ask a node for its part in persistent reservations.

        Raises:
            CommandError: it does not answer.
        """
        ...

    def ask_site(self, site: Site) -> None:
        """Ask a second site for what it has of this cluster.

        Raises:
            SanctlError: the site does not answer, or is not the one that was added.
        """
        ...

    def repositories(self) -> tuple[Repository, ...]:
        """Return the repositories for backups; none where the inventory has none.

        Raises:
            ConfigError: backup.toml cannot be read, or is wrong.
        """
        ...

    def ask_repository(self, repository: Repository) -> None:
        """Have borg name the newest archive of a repository.

        Raises:
            CommandError: it cannot.
        """
        ...


class RemoteServices:
    """The services themselves, asked from this node."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def ask_for_points(self, peer: Node, here: Node) -> None:
        """See RemoteServicesPort.ask_for_points.

        Whoever connects there has something to ask: so the peer looks for deleted devices at once,
        as its next monitor would. It gives no answer, so another secret there is not seen.
        """
        node_channel.ask_to_look_for_deleted(str(peer.sync), str(peer.name), str(here.sync))

    def ask_for_reservations(self, peer: Node, here: Node) -> None:
        """See RemoteServicesPort.ask_for_reservations."""
        channel = node_channel.connect(
            str(peer.sync),
            str(peer.name),
            str(here.sync),
            within_s=_NODE_S,
            port=node_channel.RESERVATIONS_PORT,
        )
        try:
            channel.greet(within_s=_NODE_S)
        finally:
            channel.close()

    def ask_site(self, site: Site) -> None:
        """See RemoteServicesPort.ask_site."""
        with SiteLink.by_ssh(site) as link:
            link.takeovers(site.path, site.mark)

    def repositories(self) -> tuple[Repository, ...]:
        """See RemoteServicesPort.repositories."""
        try:
            text = read_text(backups.BACKUP_TOML)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConfigError(
                Problem("SAN-CLI-003", f"{backups.BACKUP_TOML} cannot be read: {error.strerror}")
            ) from error
        return backups.parse(text)

    def ask_repository(self, repository: Repository) -> None:
        """See RemoteServicesPort.ask_repository."""
        Borg(self._runner, repository, lock_s=_LOCK_S).look()
