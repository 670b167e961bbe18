# SPDX-License-Identifier: GPL-2.0-or-later
"""What iscsiadm prints of records (`-m node`) and sessions (`-m session`)."""

from __future__ import annotations

import re

from sanctl.model.own_session import Record, Session

#: `192.0.2.1:3260,1 iqn.2026-11.net.example:san1.vol1`; an IPv6 address is in brackets.
_RECORD = re.compile(r"^(?P<portal>\S+:\d+),-?\d+ (?P<target>\S+)", re.MULTILINE)
#: `tcp: [3] 192.0.2.1:3260,1 iqn.2026-11.net.example:san1.vol1 (non-flash)`
_SESSION = re.compile(
    r"^\w+: \[(?P<sid>\d+)\] (?P<portal>\S+:\d+),-?\d+ (?P<target>\S+)", re.MULTILINE
)


def parse_records(text: str) -> tuple[Record, ...]:
    """Return the records, each once, in the order of the text."""
    found = (Record(match["target"], match["portal"]) for match in _RECORD.finditer(text))
    return tuple(dict.fromkeys(found))


def parse_sessions(text: str) -> tuple[Session, ...]:
    """Return the sessions."""
    return tuple(
        Session(int(match["sid"]), Record(match["target"], match["portal"]))
        for match in _SESSION.finditer(text)
    )
