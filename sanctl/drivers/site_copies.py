# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of a second site's program that reads and writes what is known of each proven copy.

A file beside the copy. Of a copy that was made with those of other devices at one moment it says
which devices these are, in a way that releases without groups do not read: they take it for no
copy, begin none with it, and remove none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

from sanctl.drivers.site_protocol import SiteError
from sanctl.plan.site.moments import GroupCopy, protected_tokens

FOLDER = re.compile(r"[a-z0-9-]{1,63}\.[0-9a-f]{32}")
COPY = re.compile(r"([a-z0-9-]{1,40})\.([0-9a-f]{16})")
#: The numbers that are known of each.
KNOWN = ("made_s", "proven_s", "size_bytes", "changed_bytes", "sent_bytes")
_OF_GROUP = "of_group"


def names_in(folder: str) -> list[str]:
    """Return the names of the files in a folder, sorted; none where there is no folder."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def device_folders(path: str) -> list[str]:
    """Return the names of the folders of devices at a site."""
    return [each for each in names_in(path) if FOLDER.fullmatch(each)]


def copies_in(folder: str) -> list[dict[str, Any]]:
    """Return the proven copies in a folder."""
    return _known_in(folder)[0]


def _known_in(folder: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the proven copies in a folder, and the tokens of those of which nothing is known.

    What is known of those is of a later release, damaged, or cannot be read now: such a copy is no
    base, and nobody removes it.
    """
    found, unread = [], []
    for name in names_in(folder):
        words = COPY.fullmatch(name)
        if words is None:
            continue
        try:
            with open(f"{folder}/{name}.json", encoding="ascii") as file:
                known = _read(json.load(file), os.path.basename(folder))
        except (OSError, ValueError, KeyError, TypeError):
            unread.append(words[2])
            continue
        found.append({"name": words[1], "token": words[2], **known})
    return found, unread


def _read(known: Any, folder: str) -> dict[str, Any]:
    group: list[str] = []
    left: list[str] = []
    number = 0
    if _OF_GROUP in known:
        known = known[_OF_GROUP]
        group, left = list(known["group"]), list(map(str, known["left"]))
        number = int(known["number"])
        if not _is_group(group, folder):
            raise ValueError
    numbers = {key: int(known[key]) for key in KNOWN}
    of_group = {"group": group, "left": left, "number": number}
    return {"digest": str(known["digest"]), **numbers, **of_group}


def note_of(
    path: str, folder: str, fields: dict[str, object], group: Sequence[str], left: Sequence[str]
) -> bytes:
    """Return what is written of a copy that is proven now.

    Args:
        path: the site's directory; the caller holds its lock where there is a group.
        folder: the name of the device's folder there, DEVICE.UUID.
        fields: its digest and the numbers.
        group: the folders of the devices of its moment; empty: it is of one device alone.
        left: the folders of devices that have left the group.
    """
    if group:
        if not _is_group(group, folder) or not all(map(FOLDER.fullmatch, left)):
            raise SiteError("SAN-SITE-008", f"{folder} is no device of the group that was named")
        number = max((each.number for each in _group_copies(path)[0]), default=0) + 1
        of_group = {"group": list(group), "left": list(left), "number": number}
        fields = {_OF_GROUP: {**fields, **of_group}}
    return json.dumps(fields).encode()


def _is_group(group: Sequence[object], folder: str) -> bool:
    """Whether these are the folders of a group's devices, in order, and one is that one."""
    names = [each for each in group if isinstance(each, str) and FOLDER.fullmatch(each)]
    return len(names) == len(group) > 1 and names == sorted(set(names)) and folder in names


def protected_in(path: str, folder: str) -> frozenset[str]:
    """Return the tokens of the copies that nobody removes in a folder of a site."""
    copies, unread = _group_copies(path)
    return protected_tokens(copies, folder, unread=unread)


def _group_copies(path: str) -> tuple[list[GroupCopy], list[str]]:
    """Return the copies at a site that are of groups, and the tokens of which nothing is known."""
    found, unread = [], []
    for folder in device_folders(path):
        copies, unknown = _known_in(f"{path}/{folder}")
        unread += unknown
        found += [
            GroupCopy(
                folder,
                copy["token"],
                copy["name"],
                copy["made_s"],
                copy["number"],
                tuple(copy["group"]),
                tuple(copy["left"]),
            )
            for copy in copies
            if copy["group"]
        ]
    return found, unread
