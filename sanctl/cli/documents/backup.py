# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl backup ...`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from sanctl.cli.documents.device import Device


class Backup(TypedDict):
    """A whole backup in a repository."""

    name: Annotated[str, "its name, DEVICE@POINT.TIME"]
    repository: Annotated[str, "the name of the repository"]
    device: Annotated[str, "the device"]
    point: Annotated[
        str | None, "the restore point that was read; null: one that was made for it alone"
    ]
    taken: Annotated[str, "when the restore point was made, in UTC"]
    size_bytes: Annotated[int | None, "the size of the device then; null: not known"]
    device_uuid: Annotated[
        str | None, "the device's UUID; null: not known, an older release has made the backup"
    ]


class BackupMade(Backup):
    """A backup that was made."""

    sha256: Annotated[str, "the digest of what was read"]
    stored_bytes: Annotated[
        int | None, "what it added to the repository, compressed; null: not known"
    ]
    duration_s: Annotated[float, "how long reading and storing took"]
    left: Annotated[str | None, "why its restore point is still to be removed; null: it is not"]
    deleted: Annotated[list[str], "the names of the backups that were pruned after it"]


class BackupSkipped(TypedDict):
    """No backup was made here, as another node is the one to do it."""

    skipped: Annotated[bool, "true"]


class BackupVerified(Backup):
    """A backup that was read from begin to end."""

    sha256: Annotated[str, "the digest of what was read, the same as was noted"]


class BackupRestored(Device):
    """A device that was created from a backup."""

    sha256: Annotated[str, "the digest that the device has, the same as was noted"]
    duration_s: Annotated[float, "how long it took"]


class BackupsPruned(TypedDict):
    """What was removed of a device's backups."""

    device: Annotated[str, "the device"]
    repository: Annotated[str, "the name of the repository"]
    deleted: Annotated[list[str], "the names of the backups that are gone, or would be"]
    dry_run: Annotated[bool, "nothing was changed"]


class BackupForgotten(TypedDict):
    """What `sanctl status` warns of no more: a failed backup or prune, and that none follows."""

    device: Annotated[str, "the device"]
    repository: Annotated[str, "the name of the repository"]
    was_noted: Annotated[bool, "a failure was noted"]
    was_awaited: Annotated[bool, "a timer's interval was noted, by which backups are awaited"]
    was_prune_noted: Annotated[bool, "a failed prune was noted"]


class BackupsExpected(TypedDict):
    """How often a timer is to back a device up."""

    device: Annotated[str, "the device"]
    repository: Annotated[str, "the name of the repository"]
    every_s: Annotated[int, "the longest time between two runs of the timer, in seconds"]
    changed: Annotated[bool, "the cluster knew it otherwise, or not at all"]


class RepositoryMade(TypedDict):
    """A repository that was made."""

    repository: Annotated[str, "its name"]
    location: Annotated[str, "where it is"]
