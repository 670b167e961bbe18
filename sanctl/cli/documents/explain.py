# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON document of `sanctl explain`: a code and its meaning."""

from __future__ import annotations

from typing import Annotated, TypedDict


class Meaning(TypedDict):
    """A code explained."""

    code: Annotated[str, "the code"]
    meaning: Annotated[str, "what it means"]
