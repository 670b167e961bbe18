# SPDX-License-Identifier: GPL-2.0-or-later
"""Shows backups: one that was made, what a prune has deleted and what stays."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from sanctl.cli.output import UNKNOWN
from sanctl.drivers.borg import Borg
from sanctl.errors import Problem
from sanctl.model.backup import Backup
from sanctl.model.names import format_bytes
from sanctl.ops.backup_store import BackupOutcome
from sanctl.plan.device.backup_pruning import Pruning, foreign_backup_problems

if TYPE_CHECKING:
    from sanctl.cli.documents import backup as backup_documents


def made_data(made: BackupOutcome, borg: Borg, pruned: Pruning) -> backup_documents.BackupMade:
    """Return the fields of a backup that was made, and of the prune after it."""
    found = Backup(
        name=made.name,
        repository=borg.repository.name,
        size_bytes=made.size_bytes,
        uuid=made.uuid,
    )
    return {
        **backup_data(found),
        "sha256": made.digest,
        "stored_bytes": made.stored_bytes,
        "duration_s": round(made.duration_s, 3),
        "left": made.left or None,
        "deleted": [str(each) for each in pruned.deleted],
    }


def print_made(made: BackupOutcome, borg: Borg) -> None:
    """Print that a backup was made."""
    stored = UNKNOWN if made.stored_bytes is None else format_bytes(made.stored_bytes)
    print(f"backup {made.name} is in repository {borg.repository.name}")
    print(
        f"{format_bytes(made.size_bytes)} read in {made.duration_s:.0f} s, {stored} added; "
        f"SHA-256 {made.digest}"
    )
    if made.left:
        print(f"its restore point is removed by the pool agent: {made.left}")


def pruning_problems(device: str, found: Pruning) -> list[Problem]:
    """Return what is to be said of backups that stay beyond those to keep."""
    problems = [
        Problem(
            "SAN-BKP-022",
            f"backup {each} stays, and is not counted: a clock was ahead when its restore point "
            "was made",
            "'borg delete' if it is of no use any more",
        )
        for each in found.misdated
    ]
    problems += [
        Problem(
            "SAN-BKP-024",
            f"backup {each} stays: a device is being filled from it",
            "the next prune deletes it, once that has ended",
        )
        for each in found.in_use
    ]
    return [*problems, *foreign_backup_problems(device, found)]


def print_pruned(found: Pruning, problems: Sequence[Problem], *, word: str = "is deleted") -> None:
    """Print what stays that should go, and what goes."""
    for problem in problems:
        click.echo(f"{problem}", err=True)
    for each in found.deleted:
        print(f"backup {each} {word}")


def backup_data(found: Backup) -> backup_documents.Backup:
    """Return the fields of a backup."""
    name = found.name
    return {
        "name": str(name),
        "repository": found.repository,
        "device": name.device,
        "point": None if name.is_of_own_point else name.point,
        "taken": time_text(name.taken_s),
        "size_bytes": found.size_bytes,
        "device_uuid": found.uuid or None,
    }


def time_text(seconds: int) -> str:
    """Return a moment in UTC as it is printed."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
