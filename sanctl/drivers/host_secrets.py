# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads hosts' CHAP secrets, which are in files of the node, one for each host (docs/adr/0052)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from sanctl.drivers.lio_acl import Chap
from sanctl.model.access import HostAccess
from sanctl.system.files import read_text, read_text_or

FOLDER = "/etc/sanctl/hosts"
_KEY = "/etc/sanctl/drbd.secret"  # The same on all nodes of the cluster.
_DIGEST_DIGITS = 12


def login(host: HostAccess) -> Chap | str:
    """Return how a host with CHAP logs in, or in words why its secrets cannot be used."""
    from sanctl.plan.host.secret import read_host_secrets  # noqa: PLC0415 - with CHAP alone

    path = f"{FOLDER}/{host.name}"
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o077:
            return "it is not a file that root alone can read"
        secrets = read_host_secrets(read_text(path), is_mutual=host.is_mutual)
    except OSError as error:
        return error.strerror or str(error)
    if isinstance(secrets, str):
        return secrets
    return Chap(host.chap_user, secrets.secret, host.is_mutual, secrets.mutual)


def digest(hosts: Iterable[HostAccess], device_uuid: str) -> str:
    """Return hex digits by which nodes see whether they have the same secrets for hosts with CHAP.

    Keyed by what the cluster's nodes alone know: secrets of twelve characters are soon guessed from
    a digest without a key, and everything that a node publishes can be read. Empty: there are no
    such hosts, or the key or one of their secrets cannot be used here.
    """
    chap = sorted((host for host in hosts if host.chap_user), key=lambda host: host.name)
    if not chap:
        return ""
    import hmac  # noqa: PLC0415 - with CHAP alone

    logins = [login(host) for host in chap]
    words = [
        f"{host.name} {found.user} {found.secret} {found.mutual}"
        for host, found in zip(chap, logins, strict=True)
        if not isinstance(found, str)
    ]
    try:
        key = read_text_or(_KEY, "").strip()
    except OSError:
        key = ""
    if not key or len(words) < len(chap):
        return ""
    # DRBD's secrets are digests of UUIDs by the same key: this begins with what no UUID does.
    text = "\n".join(("secrets of hosts", device_uuid, *words))
    return hmac.new(key.encode(), text.encode(), "sha256").hexdigest()[:_DIGEST_DIGITS]
