# SPDX-License-Identifier: GPL-2.0-or-later
"""backup.toml: the repositories for backups, by name. Secrets are in files beside it.

A file of its own, and not a table of cluster.toml: that one is refused as a whole by a release that
does not know the table, while nodes are updated one after the other.
"""

from __future__ import annotations

import re
import tomllib

from sanctl.config.document import Document, dotted
from sanctl.errors import ConfigError, Problem, UsageError
from sanctl.model.backup import Repository, parse_repository_name

BACKUP_TOML = "/etc/sanctl/backup.toml"
#: The folder with a repository's `NAME.passphrase`, and for ssh `NAME.key`, `NAME.known_hosts`.
SECRETS = "/etc/sanctl/backup"

SCHEMA = 1
# Characters that need no quoting anywhere; neither begins with '-', which is an option.
_PATH = re.compile(r"/[A-Za-z0-9._+/-]*[A-Za-z0-9_+-]")
_SSH = re.compile(
    r"ssh://(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9[][A-Za-z0-9.:\]-]*/[^\s'\"\\$`]+"
)


def parse(text: str, *, source: str = BACKUP_TOML) -> tuple[Repository, ...]:
    """Return the repositories a backup.toml describes, sorted by name.

    Raises:
        ConfigError: with every problem found.
    """
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(Problem("SAN-CONF-001", f"{source}: {error}")) from error
    document = Document(tree, lambda path: f"{source}: {dotted(path)}" if path else source)
    document.table((), known=("schema", "repositories"))
    schema = document.integer(("schema",))
    if schema is not None and schema != SCHEMA:
        document.note(
            "SAN-CONF-002",
            ("schema",),
            f"{schema} is not known to this version of sanctl",
            f"it reads schema {SCHEMA}",
        )
        raise ConfigError(*document.problems)
    found = [_read(document, name) for name in sorted(document.table(("repositories",)))]
    if document.problems:
        raise ConfigError(*document.problems)
    return tuple(repository for repository in found if repository is not None)


def _read(document: Document, name: str) -> Repository | None:
    path = ("repositories", name)
    try:
        parse_repository_name(name)
    except UsageError as error:
        document.note_name(path, error)
        return None
    document.table(path, known=("location",))
    location = document.text((*path, "location"))
    if location is None:
        return None
    is_path = bool(_PATH.fullmatch(location)) and not {"", ".", ".."} & set(location.split("/")[1:])
    if not is_path and not _SSH.fullmatch(location):
        document.note(
            "SAN-CONF-049",
            (*path, "location"),
            f"{location!r} is neither a plain absolute path nor an ssh:// address",
            "such as /mnt/backup/sanctl or ssh://backup@nas.example.net/./sanctl",
        )
        return None
    return Repository(name=name, location=location)
