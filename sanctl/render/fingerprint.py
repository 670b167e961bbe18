# SPDX-License-Identifier: GPL-2.0-or-later
"""The fingerprint of a whole replica as text, for resource-agents/client.

One record in each line: its kind, then its fields in hexadecimal digits. The kinds are those of the
client. The last line is `end`: a file without it is not whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Record(NamedTuple):
    """One thing that has to be as it was, and where it is read."""

    kind: str
    fields: tuple[bytes, ...]


def record(kind: str, *fields: str | bytes) -> Record:
    """Return a record; text is encoded as the file system encodes names."""
    return Record(
        kind,
        tuple(
            each if isinstance(each, bytes) else each.encode("utf-8", "surrogateescape")
            for each in fields
        ),
    )


def environment_text(environment: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return what of an environment a monitor depends on: the parameters that Pacemaker hands it.

    The client makes the same text of its own environment.
    """
    return b"\0".join(
        name + b"=" + value for name, value in sorted(environment) if name.startswith(b"OCF_")
    )


def render(records: Iterable[Record]) -> str:
    """Return the fingerprint's text."""
    lines = [" ".join((kind, *(each.hex() for each in fields))) for kind, fields in records]
    return "".join(f"{line}\n" for line in (*lines, "end"))
