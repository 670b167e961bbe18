# SPDX-License-Identifier: GPL-2.0-or-later
"""XML that a program printed, or an error that names the program: empty and broken output, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sanctl.errors import CommandError, Problem

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET


def parse_xml(text: str, program: str) -> ET.Element:
    """Return the root of what a program of the cluster printed.

    A program that is killed, or has no memory, may end with 0 and print nothing, or half of it.

    Raises:
        CommandError: the text is not XML.
    """
    import xml.etree.ElementTree as ET  # noqa: PLC0415 - seldom: no monitor pays for it

    try:
        return ET.fromstring(text)  # noqa: S314 - the cluster's own programs; the one place
    except ET.ParseError as error:
        raise CommandError(
            Problem(
                "SAN-CMD-005",
                f"what {program} printed is not XML ({error}): {text[:80]!r}",
                f"run it once more; 'journalctl -u pacemaker' says what is wrong with {program}",
            )
        ) from error
