# SPDX-License-Identifier: GPL-2.0-or-later
"""The note NAME.UUID.held beside a device's data: the latest order by which it is, or was, held.

It outlives a boot, and says what the CIB on this node's disk may not say any more, or not yet: the
node may come back alone with an older one. What follows from it is in plan/device/noted_hold.py.
"""

from __future__ import annotations

from sanctl.agents.replica import lost_writes
from sanctl.system.files import read_text_or, write_atomically

KIND = "held"


def path_of(data: str) -> str:
    """Return where the note of a data file lies."""
    return f"{data.removesuffix('.data')}.{KIND}"


def read(name: str, data: str | None = None) -> str:
    """Return what is noted of a device; empty: nothing, or no data file is known.

    Args:
        name: the device's name.
        data: the path of its data file; None: of the one that is attached here, if any.

    Raises:
        OSError: it is not known.
    """
    data = data or lost_writes.data_file(name)
    return read_text_or(path_of(data), "").strip() if data is not None else ""


def keep_after_start(name: str, order: str, data: str) -> None:
    """Note what follows from the order, and from what is noted, where the device starts anew.

    Raises:
        OSError: the pool takes no writes, or what is noted cannot be read.
    """
    from sanctl.plan.device import noted_hold  # noqa: PLC0415 - rarely needed

    text = noted_hold.note_after_start(order, read(name, data))
    if text is not None:
        write_atomically(path_of(data), f"{text}\n", mode=0o600)


def keep_of_others(name: str, newest: str) -> None:
    """Note the newest order that other nodes have noted, if what is noted here is older.

    Raises:
        OSError: the pool takes no writes, or what is noted cannot be read.
    """
    from sanctl.plan.device import noted_hold  # noqa: PLC0415 - rarely needed

    data = lost_writes.data_file(name)
    text = noted_hold.note_of_others(newest, read(name, data)) if data is not None else None
    if data is not None and text is not None:
        write_atomically(path_of(data), f"{text}\n", mode=0o600)


def keep(name: str, order: str, data: str | None = None) -> bool:
    """Note an order, stable on the disk when this returns, unless it says nothing new of a hold.

    Args:
        name: the device's name.
        order: its parameter `restore`.
        data: the path of its data file; None: of the one that is attached here, if any.

    Returns:
        False: no data file is known.

    Raises:
        OSError: the pool takes no writes; what was noted stands.
    """
    from sanctl.plan.device import noted_hold  # noqa: PLC0415 - rarely needed

    data = data or lost_writes.data_file(name)
    if data is None:
        return False
    text = noted_hold.next_note(order, read(name, data))
    if text is not None:
        write_atomically(path_of(data), f"{text}\n", mode=0o600)
    return True
