# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that commands on backups share: which repository, and how many backups stay."""

from __future__ import annotations

import click

from sanctl.cli.environment import Environment
from sanctl.cli.options import SECONDS, Command
from sanctl.config import backups as backup_toml
from sanctl.drivers.borg import LOCK_S, Borg
from sanctl.errors import ConfigError, Problem
from sanctl.plan.device.backups import KEEP_UNITS, find_repository
from sanctl.system.files import read_text


def repository_option(command: Command) -> Command:
    """Add --repository, which may be left out where a node has one repository."""
    return click.option(
        "--repository",
        metavar="REPOSITORY",
        help="Its name in backup.toml; required when there are several.",
    )(command)


def wait_option(command: Command) -> Command:
    """Add --wait: how long a command waits for others that use the repository."""
    return click.option(
        "--wait",
        "wait_s",
        type=SECONDS,
        default=LOCK_S,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait while other backups use the repository.",
    )(command)


_SPANS = {
    "hourly": "hours",
    "daily": "days",
    "weekly": "weeks",
    "monthly": "months",
    "yearly": "years",
}


def keep_options(command: Command) -> Command:
    """Add --keep-last, --keep-hourly and the others: how many backups stay."""
    for unit in reversed(KEEP_UNITS):
        spans = _SPANS.get(unit)
        what = f"The newest of each of so many {spans}" if spans else "The newest ones"
        command = click.option(
            f"--keep-{unit}", type=click.IntRange(1, 9999), metavar="N", help=what + "."
        )(command)
    return command


def borg_of(env: Environment, repository: str | None, *, lock_s: int = LOCK_S) -> Borg:
    """Return borg for a repository in backup.toml.

    Args:
        env: the command's environment.
        repository: the repository's name; None where backup.toml has one repository.
        lock_s: for how many seconds borg waits while another process uses the repository.

    Raises:
        ConfigError: backup.toml cannot be read.
        Refused: no such repository is in it, or the name is missing and there are several.
    """
    try:
        text = read_text(backup_toml.BACKUP_TOML)
    except FileNotFoundError:
        return Borg(env.runner, find_repository((), repository), lock_s=lock_s)
    except OSError as error:
        raise ConfigError(
            Problem(
                "SAN-CLI-003",
                f"{backup_toml.BACKUP_TOML} cannot be read: {error.strerror}",
                "run sanctl as root",
            )
        ) from error
    return Borg(env.runner, find_repository(backup_toml.parse(text), repository), lock_s=lock_s)
