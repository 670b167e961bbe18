# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `backup init`: makes a repository, in no pool."""

from __future__ import annotations

from sanctl.drivers import pool_files
from sanctl.drivers.borg import Borg
from sanctl.errors import Problem, Refused
from sanctl.model.topology import Topology


def make_repository(borg: Borg, topology: Topology) -> None:
    """Make a repository where backups are not lost with the devices that they are of.

    Raises:
        Refused: its place is in a pool of this node.
        CommandError: there is one, or it cannot be made.
    """
    repository = borg.repository
    for pool in () if repository.is_remote else topology.pools:
        if pool_files.holds(str(pool.path), repository.location):
            raise Refused(
                Problem(
                    "SAN-BKP-033",
                    f"repository {repository.name} would be at {repository.location}, in pool "
                    f"{pool.name} of this node: lost with it, and in the room of its devices",
                    "name a place on another disk or server in sanctl_backup_repositories, and run "
                    "the playbook",
                )
            )
    borg.init()
