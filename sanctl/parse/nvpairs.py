# SPDX-License-Identifier: GPL-2.0-or-later
"""Name and value pairs in an element of the CIB, and the words that Pacemaker reads as true."""

from __future__ import annotations

import xml.etree.ElementTree as ET

#: In lower case.
TRUE = frozenset({"true", "yes", "on", "1", "y"})


def pairs_of(element: ET.Element, *sets: str) -> dict[str, str]:
    """Return the nvpairs in an element's attribute sets by name; rules are ignored."""
    return {
        pair.get("name", ""): pair.get("value", "")
        for tag in sets
        for group in element.findall(tag)
        for pair in group.findall("nvpair")
    }
