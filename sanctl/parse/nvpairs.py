# SPDX-License-Identifier: GPL-2.0-or-later
"""Name and value pairs in an element of the CIB."""

from __future__ import annotations

import xml.etree.ElementTree as ET


def pairs_of(element: ET.Element, *sets: str) -> dict[str, str]:
    """Return the nvpairs in an element's attribute sets by name; rules are ignored."""
    return {
        pair.get("name", ""): pair.get("value", "")
        for tag in sets
        for group in element.findall(tag)
        for pair in group.findall("nvpair")
    }
