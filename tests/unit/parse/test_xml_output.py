# SPDX-License-Identifier: GPL-2.0-or-later
"""What a program printed is XML, or an error names the program."""

from __future__ import annotations

import pytest

from sanctl.errors import CommandError
from sanctl.parse.xml_output import parse_xml


@pytest.mark.parametrize("text", ["", " ", "<cib", "<a></b>", "Call failed", "\0"])
def test_half_a_document_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(CommandError, match=r"SAN-CMD-005.*cibadmin printed"):
        parse_xml(text, "cibadmin")


def test_a_document_is_read() -> None:
    assert parse_xml("<cib epoch='3'/>", "cibadmin").get("epoch") == "3"
