# SPDX-License-Identifier: GPL-2.0-or-later
"""A second site in the laboratory: the host i1, with an XFS filesystem in a file of its own.

It is reached over the iscsi network, by a key that is put on the storage nodes.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.harness.site_server import SiteServer, site_server
from tests.support.json_contract import breaches

SITE, SERVER = "far", "i1"
IMAGE, MOUNT, PATH = "/var/tmp/site.img", "/srv/copies", "/srv/copies/sanctl"
KEY = "/etc/sanctl/site_key"


def server(bed: LabSession) -> contextlib.AbstractContextManager[str]:
    """Make the server a site's, with the nodes' key; yield its address for ssh."""
    return site_server(bed, SiteServer(SITE, SERVER, IMAGE, MOUNT, PATH, KEY, 512))


def sanctl(bed: LabSession, node: str, words: str, *, status: int = 0) -> Any:
    """Run a command on a node; return its data, or its problems where it is to fail."""
    done = bed.sh(node, f"sanctl {words} --output json", timeout_s=400, ok=range(256))
    found = json.loads(done.stdout)
    assert done.status == status, done.stdout + done.stderr
    wrong = breaches(" ".join(words.split()[:2]), done.stdout)
    assert not wrong, f"{words}: {wrong}"
    return found["problems"] if status else found["data"]


def digest(bed: LabSession, node: str, path: str) -> str:
    """Return the SHA-256 of a file on a machine."""
    return bed.sh(node, f"sha256sum <{path}", timeout_s=120).stdout.split()[0]


def files(bed: LabSession) -> list[str]:
    """Return the files that the site has of all devices, but for those that count the copies."""
    look = "find . -type f -path './*/*' ! -name counter.json | sort"
    return bed.sh(SERVER, f"cd {PATH} && {look}").stdout.split()


def state(bed: LabSession) -> dict[str, str]:
    """Return the digest of each proven copy by its file; nothing may change one."""
    found = [each for each in files(bed) if not each.endswith((".json", ".partial", ".chunks"))]
    return {each: digest(bed, SERVER, f"{PATH}/{each}") for each in found}
