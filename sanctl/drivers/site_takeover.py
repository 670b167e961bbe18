# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of a second site's program that keeps who has taken a device over.

A file in the device's folder. That it is there decides; what it says is for people. While it is
there no copy is begun, proven or removed in that folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from sanctl.drivers.site_protocol import SiteError

TAKEOVER_NAME = "takeover.json"


def read_takeover(folder: str) -> dict[str, object] | None:
    """Return what is known of who has taken a device over; None: nobody has."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(f"{folder}/{TAKEOVER_NAME}", flags)
    except FileNotFoundError:
        return None
    except OSError:
        return {}  # Something is there.
    try:
        with open(handle, encoding="ascii") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def refuse_taken_over(folder: str) -> None:
    """Raise SiteError if the device has been taken over."""
    found = read_takeover(folder)
    if found is not None:
        raise SiteError(
            "SAN-SITE-021",
            f"{os.path.basename(folder)} was taken over by device {found.get('device', 'unknown')}",
        )


def note_takeover(
    folder: str, wanted: dict[str, object], write_file: Callable[[str, bytes], None]
) -> bool:
    """Note who takes a device over; return whether that is new. Another one's claim stays."""
    found = read_takeover(folder)
    if found is None:
        write_file(f"{folder}/{TAKEOVER_NAME}", json.dumps(wanted).encode())
        return True
    if found.get("uuid") != wanted["uuid"]:
        refuse_taken_over(folder)
    return False
