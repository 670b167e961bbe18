# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of a second site's program that keeps who has taken a device over.

A file in the device's folder. That it is there decides; what it says is for people. While it is
there no copy is begun, proven or removed in that folder. Another file has the takeovers that were
given back: of one that is gone without that, as where the site's storage went back to an older
state, the cluster that was taken over knows that it was lost.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection

from sanctl.drivers.site_copies import copies_in, unread_in
from sanctl.drivers.site_files import write_file
from sanctl.drivers.site_protocol import SiteError

TAKEOVER_NAME = "takeover.json"
ENDINGS_NAME = "given-back.json"
#: What a takeover that can be read has, and what the cluster makes of any other one: as in
#: model/site_takeover.py, which a site does not have.
_FIELDS = (
    ("device", re.compile(r"[a-z0-9-]{1,63}")),
    ("uuid", re.compile(r"[0-9a-f]{32}")),
    ("point", re.compile(r"[a-z0-9-]{1,63}")),
    ("at_s", re.compile(r"[0-9]{1,10}")),
)
_UNKNOWN = ("0" * 32, 0)
#: How many takeovers that were given back are kept of a device, the latest ones.
_ENDINGS = 64


def read_takeover(folder: str) -> dict[str, object] | None:
    """Return what is known of who has taken a device over; None: nobody has."""
    try:
        found = _read(f"{folder}/{TAKEOVER_NAME}")
    except FileNotFoundError:
        return None
    return found if isinstance(found, dict) else {}


def read_endings(folder: str) -> list[dict[str, object]]:
    """Return the takeovers that were given back. One that cannot be read was not."""
    try:
        found = _read(f"{folder}/{ENDINGS_NAME}")
    except FileNotFoundError:
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _read(path: str) -> object:
    """Return what a file has; None: it cannot be read. Raise FileNotFoundError without one."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError:
        return None  # Something is there.
    try:
        with open(handle, encoding="ascii") as file:
            found: object = json.load(file)
    except (OSError, ValueError):
        return None
    return found


def refuse_taken_over(folder: str) -> None:
    """Raise SiteError if the device has been taken over."""
    found = read_takeover(folder)
    if found is not None:
        raise SiteError(
            "SAN-SITE-021",
            f"{os.path.basename(folder)} was taken over by device {_device_of(found)}",
        )


def refuse_claim(
    folder: str,
    wanted: dict[str, object],
    seen: Collection[str] | None = None,
    replaced: dict[str, object] | None = None,
) -> None:
    """Raise SiteError if a device does not take another one over.

    Args:
        folder: the folder of that one. The caller holds its lock until the takeover is noted.
        wanted: the takeover.
        seen: the tokens of the copies that it was decided by. One that has come since may be newer:
            what is in it alone would be given up unasked. None: whatever there is.
        replaced: the takeover that ends by this one, with when and by whom; None: none does.
    """
    found = read_takeover(folder)
    if found is not None:
        # Since then no copy has come. Another one's claim stays, unless it was named.
        is_named = replaced is not None and _which(found) == _which(replaced)
        if found.get("uuid") != wanted["uuid"] and not is_named:
            refuse_taken_over(folder)
        return
    if seen is None:
        return
    came = [str(each["name"]) for each in copies_in(folder) if each["token"] not in seen]
    came += unread_in(folder)
    if came:
        raise SiteError(
            "SAN-SITE-036",
            f"copy {came[0]} of {os.path.basename(folder)} has come since the site was asked what "
            "it has, and may be newer; nothing is taken over: give the command again",
        )


def note_takeover(
    folder: str, wanted: dict[str, object], replaced: dict[str, object] | None = None
) -> bool:
    """Note who takes a device over, where nothing refuses that; return whether that is new.

    At no moment nobody has taken it over: the one note takes the place of the other.
    """
    found = read_takeover(folder)
    if found is not None:
        if replaced is None or found.get("uuid") == wanted["uuid"]:
            return False
        # First: else the other cluster would take it for lost once the new one is given back.
        note_ending(folder, replaced)
    write_file(f"{folder}/{TAKEOVER_NAME}", json.dumps(wanted).encode())
    return True


def refuse_without_claim(folder: str, uuid: str) -> None:
    """Raise SiteError unless a device has taken another one over.

    Where both take each other over at once each would end the other's takeover, and both be copied.
    """
    found = read_takeover(folder)
    if found is None or found.get("uuid") != uuid:
        raise SiteError(
            "SAN-SITE-021",
            f"the takeover of {os.path.basename(folder)} has ended meanwhile, or is another one's: "
            "'sanctl replicate status' shows which device goes on",
        )


def note_ending(folder: str, ending: dict[str, object]) -> bool:
    """Note that a takeover is given back, before it is removed; return whether there is one.

    Another one than was meant stays, also by the same device: it came after the question.
    """
    found = read_takeover(folder)
    if found is not None and _which(found) != _which(ending):
        raise SiteError(
            "SAN-SITE-021",
            f"{os.path.basename(folder)} was taken over by device {_device_of(found)} after the "
            "question, and that takeover stays",
        )
    known = [each for each in read_endings(folder) if not _is_same(each, ending)]
    text = json.dumps([*known, ending][-_ENDINGS:])
    write_file(f"{folder}/{ENDINGS_NAME}", text.encode())
    return found is not None


def _device_of(found: dict[str, object]) -> str:
    """Return which device a takeover is by, for people."""
    return f"{found.get('device', 'unknown')}.{str(found.get('uuid', ''))[:8]}".rstrip(".")


def _which(fields: dict[str, object]) -> tuple[str, int]:
    """Return what tells a takeover from others. All that cannot be read are one."""
    words = {name: str(fields.get(name, "")) for name, _ in _FIELDS}
    if not all(rule.fullmatch(words[name]) for name, rule in _FIELDS):
        return _UNKNOWN
    return words["uuid"], int(words["at_s"])


def _is_same(one: dict[str, object], other: dict[str, object]) -> bool:
    return all(one.get(name) == other[name] for name in ("uuid", "at_s"))
