# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON documents of `sanctl status`, `sanctl doctor` and `sanctl explain`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from sanctl.cli.documents.device import (
    Device,
)
from sanctl.cli.documents.node import Node


class Finding(TypedDict):
    """Something that is not as it should be."""

    code: Annotated[str, "its code, as in [the list of codes](errors.md)"]
    severity: Annotated[str, "`critical`, `warning`, or `note`, which is nothing bad"]
    subject: Annotated[str, "what it is about, such as `device vol1`"]
    what: Annotated[str, "what was found"]
    why: Annotated[str, "why it matters; may be empty"]
    do: Annotated[str, "what to do; may be empty"]


class Status(TypedDict):
    """The health of everything."""

    summary: Annotated[str, "the first line of the text form"]
    strategy: Annotated[str | None, "as in `Cluster`; null: cluster.toml cannot be read"]
    has_quorum: Annotated[bool, "whether this part of the cluster may act"]
    nodes: Annotated[list[Node], "all nodes"]
    devices: Annotated[list[Device], "all devices"]
    findings: Annotated[list[Finding], "what is wrong, the worst first"]
