# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks an inventory's second sites: the servers of its group `sanctl_sites`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sanctl.config.document import Document
from sanctl.errors import UsageError
from sanctl.model.site import DEFAULT_PORT, parse_address, parse_path, parse_site_name

SITES = "sanctl_sites"
_PREFIX = "sanctl_second_site_"
#: What a site has that the inventory says nothing of. The role's argument_specs say the same.
DEFAULTS = {"user": "sanctl-site", "port": DEFAULT_PORT, "path": "/srv/copies/sanctl"}

Hostvars = Mapping[str, Mapping[str, Any]]


def check_sites(
    document: Document, hostvars: Hostvars, groups: Mapping[str, Sequence[str]]
) -> list[dict[str, str]]:
    """Add the problems of the second sites' variables; return the sites.

    Returns:
        Of each its `name`, `host` in the inventory, `user`, `address` for ssh, and `path`.
    """
    found: dict[str, dict[str, str]] = {}
    for host in map(str, groups.get(SITES, ())):
        site = _site(document, host, hostvars[host])
        if site is None:
            continue
        other = found.setdefault(site["name"], site)
        if other is not site:
            _note(document, host, "name", f"{site['name']!r} is that of {other['host']}, too")
    return list(found.values())


def _site(document: Document, host: str, variables: Mapping[str, Any]) -> dict[str, str] | None:
    before = len(document.problems)

    def value(key: str, default: object) -> str:
        given = variables.get(_PREFIX + key)
        return str(default if given is None else given)

    name, user = value("name", host), value("user", DEFAULTS["user"])
    path, port = value("path", DEFAULTS["path"]), value("port", DEFAULTS["port"])
    where = value("address", variables.get("ansible_host") or host)
    if ":" in where and not where.startswith("["):
        where = f"[{where}]"
    if user == "root":
        _note(document, host, "user", "is root", "a user of its own, who owns the directory alone")
    address = f"{user}@{where}:{port}"
    for key, read, text in (
        ("name", parse_site_name, name),
        ("address", parse_address, address),
        ("path", parse_path, path),
    ):
        try:
            read(text)
        except UsageError as error:
            for problem in error.problems:
                _note(document, host, key, problem.text, problem.hint)
    if len(document.problems) > before:
        return None
    return {"name": name, "host": host, "user": user, "address": address, "path": path}


def _note(document: Document, host: str, key: str, text: str, hint: str = "") -> None:
    document.note("SAN-CONF-050", ("sites", host, key), text, hint)
