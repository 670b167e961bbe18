# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads hosts' CHAP secrets, which are in files of the node, one for each host (docs/adr/0052)."""

from __future__ import annotations

import os
import stat

from sanctl.drivers.lio_acl import Chap
from sanctl.model.access import HostAccess
from sanctl.system.files import read_text

FOLDER = "/etc/sanctl/hosts"


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
