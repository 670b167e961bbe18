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
from sanctl.plan.site.moments import UNLISTED, GroupCopy, protected_tokens

FOLDER = re.compile(r"[a-z0-9-]{1,63}\.[0-9a-f]{32}")
COPY = re.compile(r"([a-z0-9-]{1,40})\.([0-9a-f]{16})")
#: The numbers that are known of each.
KNOWN = ("made_s", "proven_s", "size_bytes", "changed_bytes", "sent_bytes")
_OF_GROUP = "of_group"
#: The file in a device's folder with the highest number that a copy of it was given.
COUNTER_NAME = "counter.json"


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


def unread_in(folder: str) -> list[str]:
    """Return the names of the copies in a folder whose notes cannot be read."""
    return [name for name, _ in _known_in(folder)[1]]


def copies_of(folder: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the proven copies in a folder, and the names of those whose notes cannot be read.

    Where the folder itself cannot be read, as with a damaged disk, UNLISTED stands for its copies.
    """
    try:
        found, unread = _known_in(folder)
    except OSError:
        return [], [UNLISTED]
    return found, [name for name, _ in unread]


def _known_in(folder: str) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """Return the proven copies in a folder; name and token of each of which nothing is known.

    What is known of those is of a later release, damaged, or cannot be read now: such a copy is no
    base, and nobody removes it. It may be the newest one.
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
            unread.append((words[1], words[2]))
            continue
        found.append({"name": words[1], "token": words[2], **known})
    return found, unread


def open_copy(folder: str, token: str) -> tuple[dict[str, Any], int]:
    """Open a proven copy in a folder for reading; return what is known of it as well."""
    copy = next((each for each in copies_in(folder) if each["token"] == token), None)
    if copy is None:
        raise SiteError("SAN-SITE-018", f"the site has no copy {token}")
    path = f"{folder}/{copy['name']}.{token}"
    return copy, os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _read(known: Any, folder: str) -> dict[str, Any]:
    group: list[str] = []
    left: list[str] = []
    if _OF_GROUP in known:
        known = known[_OF_GROUP]
        group, left = list(known["group"]), list(map(str, known["left"]))
        if not _is_group(group, folder):
            raise ValueError
    numbers = {key: int(known[key]) for key in KNOWN}
    # Earlier releases numbered the copies of groups alone, and said of none what was before it.
    order = {"number": int(known.get("number", 0)), "after": int(known.get("after", -1))}
    # And read each as a whole when they proved it.
    order["read_s"] = int(known.get("read_s", 0))
    return {"digest": str(known["digest"]), **numbers, **order, "group": group, "left": left}


def note_of(
    folder: str, fields: dict[str, object], group: Sequence[str], left: Sequence[str]
) -> bytes:
    """Return what is written of a copy that is proven now.

    Args:
        folder: the name of the device's folder there, DEVICE.UUID.
        fields: its digest and the numbers.
        group: the folders of the devices of its moment; empty: it is of one device alone.
        left: the folders of devices that have left the group.
    """
    if group:
        if not _is_group(group, folder) or not all(map(FOLDER.fullmatch, left)):
            raise SiteError("SAN-SITE-008", f"{folder} is no device of the group that was named")
        fields = {_OF_GROUP: {**fields, "group": list(group), "left": list(left)}}
    return json.dumps(fields).encode()


def next_number(path: str, folders: Sequence[str]) -> int:
    """Return a number that is higher than that of each copy in some folders of a site.

    The caller holds the lock of the one that gets it, and the site's if there are several. A copy
    whose note cannot be read has a number, too: the counter knows of it.

    Raises:
        SiteError: neither the notes nor the counter say which numbers were given.
    """
    highest = 0
    for folder in folders:
        copies, unread = _known_in(f"{path}/{folder}")
        counted = _counted(f"{path}/{folder}/{COUNTER_NAME}")
        if counted is None and unread:
            raise SiteError(
                "SAN-SITE-035",
                f"{path}/{folder}/{COUNTER_NAME} and the note of copy {unread[0][1]} there cannot "
                "be read, so it is not known which copy is the newest",
            )
        highest = max([highest, counted or 0, *(each["number"] for each in copies)])
    return highest + 1


def counter_of(number: int) -> bytes:
    """Return what is written of the highest number that was given."""
    return json.dumps({"number": number}).encode()


def _counted(path: str) -> int | None:
    """Return the highest number that was given; 0: none was yet; None: it cannot be read."""
    try:
        with open(path, encoding="ascii") as file:
            return int(json.load(file)["number"])
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_group(group: Sequence[object], folder: str) -> bool:
    """Whether these are the folders of a group's devices, in order, and one is that one."""
    names = [each for each in group if isinstance(each, str) and FOLDER.fullmatch(each)]
    return len(names) == len(group) > 1 and names == sorted(set(names)) and folder in names


def protected_in(path: str, folder: str) -> frozenset[str]:
    """Return the tokens of the copies that nobody removes in a folder of a site."""
    copies, unread = _group_copies(path)
    return protected_tokens(copies, folder, unread=unread)


def _group_copies(path: str) -> tuple[list[GroupCopy], list[str]]:
    """Return the copies at a site that are of groups, and the tokens of which nothing is known.

    Among those are the copies whose group has a device with a folder that cannot be read.
    """
    found, unread, unlisted = [], [], set()
    for folder in device_folders(path):
        try:
            copies, unknown = _known_in(f"{path}/{folder}")
        except OSError:
            unlisted.add(folder)
            continue
        unread += [token for _, token in unknown]
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
    unread += [each.token for each in found if not unlisted.isdisjoint(each.group)]
    return found, unread
