# SPDX-License-Identifier: GPL-2.0-or-later
"""borg's failures as problems with a code of sanctl's, and what to do about each."""

from __future__ import annotations

from sanctl.config.backups import SECRETS
from sanctl.drivers.borg_access import BASE, shell_line
from sanctl.errors import Problem
from sanctl.model.backup import Repository
from sanctl.parse.borg import BROKEN_CACHE, LOCK_TIMEOUT, Failure

LOCKED, MOVED, NO_CACHE = "SAN-BKP-012", "SAN-BKP-030", "SAN-BKP-032"
_CODES = {
    "Repository.DoesNotExist": "SAN-BKP-010",
    "Repository.InvalidRepository": "SAN-BKP-010",
    "PathNotAllowed": "SAN-BKP-010",
    "PassphraseWrong": "SAN-BKP-011",
    "NoPassphraseFailure": "SAN-BKP-011",
    "PasscommandFailure": "SAN-BKP-011",
    LOCK_TIMEOUT: "SAN-BKP-012",
    "LockFailed": "SAN-BKP-012",
    "NoSpace": "SAN-BKP-013",
    "Repository.InsufficientFreeSpaceError": "SAN-BKP-013",
    "Repository.StorageQuotaExceeded": "SAN-BKP-013",
    "ConnectionClosed": "SAN-BKP-014",
    "ConnectionClosedWithHint": "SAN-BKP-014",
    "Archive.DoesNotExist": "SAN-BKP-016",
    "Archive.AlreadyExists": "SAN-BKP-017",
    "Repository.AlreadyExists": "SAN-BKP-018",
    # It is asked where an encrypted repository was at another place before; and is told no here.
    "Cache.RepositoryAccessAborted": MOVED,
    BROKEN_CACHE: NO_CACHE,
}
_HINTS = {
    "SAN-BKP-010": "is it mounted? A new one is made by 'sanctl backup init'",
    "SAN-BKP-011": f"the right one belongs in {SECRETS}/NAME.passphrase on this node",
    LOCKED: "another backup or check uses it: try again later, or with --wait SECONDS, where the "
    "command has it. Where none does, because a server was lost",
    MOVED: "borg on this node knows the repository at another place. If it was moved, or its "
    "server has another name, once on each node that says so",
    NO_CACHE: f"it was removed once, and is made anew from the repository: has {BASE} room, and "
    "does its disk read and write?",
    "SAN-BKP-013": "nothing that is there was lost. 'sanctl backup prune' makes room, and needs "
    "some itself: where it fails so, make some beside the repository, or 'borg config REPOSITORY "
    f"additional_free_space 0' where some is kept free. borg's cache here needs room, too: {BASE}",
    "SAN-BKP-014": "is the server up, is borg installed there, does it know this node's key, and "
    "has it the host key that this node expects (known_hosts)?",
    "SAN-BKP-016": "'sanctl backup list' shows those that there are",
    "SAN-BKP-017": "'sanctl backup list' shows it",
    "SAN-BKP-018": "it stays as it is; use it, or name another place",
}


def problem_of(failure: Failure, repository: Repository) -> Problem:
    """Return the problem that borg's failure is, with a code of ours."""
    code = _CODES.get(failure.kind, "SAN-BKP-015")
    said = f"{failure.text} ({failure.remote})" if failure.remote else failure.text
    hint = _HINTS.get(code, "")
    if code == LOCKED:
        hint += f": {shell_line(repository, 'break-lock')}"
    elif code == MOVED:
        hint += f": {shell_line(repository, 'list', BORG_RELOCATED_REPO_ACCESS_IS_OK='yes')}"
    return Problem(code, f"repository {repository.name}: {said}", hint)
