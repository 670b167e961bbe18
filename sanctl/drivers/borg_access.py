# SPDX-License-Identifier: GPL-2.0-or-later
"""What borg gets into a repository with on this node: passphrase, key, and what it knows of them.

borg gets the passphrase from a file by a command of its own, so it is in no command line, no
variable and no log.
"""

from __future__ import annotations

import os
import shlex
import stat

from sanctl.config.backups import SECRETS
from sanctl.errors import CommandError, Problem
from sanctl.model.backup import Repository
from sanctl.system.files import exists

#: borg's caches and what it knows of its repositories.
BASE = "/var/lib/sanctl/borg"


def passphrase_file(repository: Repository) -> str:
    """Return the file with a repository's passphrase."""
    return f"{SECRETS}/{repository.name}.passphrase"


def shell_line(repository: Repository, command: str, **variables: str) -> str:
    """Return the line by which an operator has borg do a command, as sanctl would on this node."""
    words = {**environment(repository), **variables}
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in words.items())
    return f"{given} borg {command} {shlex.quote(repository.location)}"


def environment(repository: Repository) -> dict[str, str]:
    """Return where borg has what it knows, and by what it gets into a repository."""
    secret = f"{SECRETS}/{repository.name}"
    env = {"BORG_BASE_DIR": BASE, "BORG_PASSCOMMAND": f"cat {passphrase_file(repository)}"}
    if repository.is_remote:
        env["BORG_RSH"] = " ".join(_ssh(secret))
    return env


def check_secret(path: str) -> None:
    """Check that a file with a secret is there, and that only its owner can read it.

    Raises:
        CommandError: it is not.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise CommandError(
            Problem(
                "SAN-BKP-011",
                f"{path}: {error.strerror}",
                "the playbook puts it there from sanctl_backup_repositories",
            )
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CommandError(
            Problem(
                "SAN-BKP-011",
                f"{path} can be read by others than its owner",
                f"chmod 0600 {path}; and think of the passphrase as known",
            )
        )


def _ssh(secret: str) -> tuple[str, ...]:
    # A server that is gone is noticed within half a minute, and nothing is asked on a terminal.
    options = ["BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=10"]
    options += ["ServerAliveCountMax=3", "StrictHostKeyChecking=yes"]
    if exists(f"{secret}.known_hosts"):
        options.append(f"UserKnownHostsFile={secret}.known_hosts")
    key = ("-i", f"{secret}.key") if exists(f"{secret}.key") else ()
    return ("ssh", *key, *(word for option in options for word in ("-o", option)))
