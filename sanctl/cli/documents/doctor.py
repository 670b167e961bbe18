# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON document of `sanctl doctor`: each check, and the findings."""

from __future__ import annotations

from typing import Annotated, TypedDict

from sanctl.cli.documents.status import Finding


class Check(TypedDict):
    """One check of `sanctl doctor`."""

    name: Annotated[str, "what was checked"]
    wrong: Annotated[int | None, "how much was found wrong; null: it could not be checked"]


class Examination(TypedDict):
    """What `sanctl doctor` found, seen from one node."""

    node: Annotated[str, "the node it ran on"]
    checks: Annotated[list[Check], "all checks"]
    findings: Annotated[list[Finding], "what is wrong, the worst first"]
