# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl host ...`: IQNs, CHAP user, devices."""

from __future__ import annotations

from typing import Annotated, TypedDict


class Host(TypedDict):
    """A host."""

    name: Annotated[str, "its name"]
    iqns: Annotated[list[str], "the names of its initiators"]
    chap_user: Annotated[str | None, "the user name of CHAP; null: it logs in without"]
    mutual: Annotated[bool, "the target authenticates to it, too"]
    devices: Annotated[list[str], "the devices that it may use"]


class HostChanged(Host):
    """A host after `create`, `set` or `rename`."""

    changed: Annotated[bool, "false: it was like that already"]


class HostDeleted(TypedDict):
    """A host that was deleted."""

    name: Annotated[str, "its name"]
