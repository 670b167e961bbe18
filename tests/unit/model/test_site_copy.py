# SPDX-License-Identifier: GPL-2.0-or-later
"""The copy at a site that a device is to hold: as text and back, and as it is typed."""

from __future__ import annotations

import pytest

from sanctl.errors import UsageError
from sanctl.model.site_copy import SiteCopy, WantedCopy

COPY = SiteCopy("far", "web", "a" * 32, "to-far", "b" * 16, "c" * 64)


def test_a_copy_as_text() -> None:
    assert SiteCopy.parse(str(COPY)) == COPY
    assert COPY.folder == f"web.{'a' * 32}" and COPY.name == "web.aaaaaaaa@to-far at site far"
    assert " " not in str(COPY), "it is a word of an order"


@pytest.mark.parametrize(
    "text",
    ["good", "nas::web@x", str(COPY)[:-1], str(COPY) + "0", f"x{COPY}".replace("far:", "Far:"),
     str(COPY).replace("web.", "../web."), str(COPY).replace("b" * 16, "b" * 15)],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    assert SiteCopy.parse(text) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("web", WantedCopy("web", "", "")),
        ("web@p-1", WantedCopy("web", "", "p-1")),
        ("web.12ab", WantedCopy("web", "12ab", "")),
        ("web.12ab@p", WantedCopy("web", "12ab", "p")),
    ],
)
def test_as_it_is_typed(text: str, wanted: WantedCopy) -> None:
    assert WantedCopy.parse(text) == wanted and str(wanted) == text


@pytest.mark.parametrize("text", ["", "Web", "web@", "web.", "web.x", "a/b", "web.1@P", "..@p"])
def test_what_names_none(text: str) -> None:
    with pytest.raises(UsageError, match="SAN-SITE-001"):
        WantedCopy.parse(text)
