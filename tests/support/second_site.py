# SPDX-License-Identifier: GPL-2.0-or-later
"""A second site in the laboratory: the host i1, with an XFS filesystem in a file of its own.

It is reached over the iscsi network, by a key that is put on the storage nodes.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.machines.spec import Network
from tests.support.json_contract import breaches

SITE, SERVER = "far", "i1"
IMAGE, MOUNT, PATH = "/var/tmp/site.img", "/srv/copies", "/srv/copies/sanctl"
KEY = "/etc/sanctl/site_key"


@contextlib.contextmanager
def server(bed: LabSession) -> Iterator[str]:
    """Make the server a site's, with the nodes' key; yield its address for ssh."""
    bed.sh(
        SERVER,
        f"truncate -s 512M {IMAGE} && mkfs.xfs -q {IMAGE} && mkdir -p {MOUNT}"
        f" && mount -o loop {IMAGE} {MOUNT} && mkdir {PATH}",
        timeout_s=120,
    )
    bed.sh("n1", f"ssh-keygen -q -t ed25519 -N '' -f {KEY}", timeout_s=60)
    public = bed.read_bytes("n1", f"{KEY}.pub").decode().strip()
    secret = base64.b64encode(bed.read_bytes("n1", KEY)).decode()
    bed.sh("n2", f"umask 077; base64 -d >{KEY}", stdin=secret)
    bed.sh(SERVER, f"cp -a /root/.ssh/authorized_keys /var/tmp/keys.before; echo '{public}'"
           " >>/root/.ssh/authorized_keys")  # fmt: skip
    yield f"root@{bed.node(SERVER).address(Network.ISCSI)}"
    bed.sh("n3", f"sanctl site remove {SITE}", timeout_s=60, ok=range(256))
    for node in ("n1", "n2"):
        bed.sh(node, f"rm -f {KEY} {KEY}.pub")
    bed.sh(
        SERVER,
        f"mv /var/tmp/keys.before /root/.ssh/authorized_keys; umount {MOUNT}; rm -f {IMAGE}",
        timeout_s=60,
    )


def sanctl(bed: LabSession, node: str, words: str, *, status: int = 0) -> Any:
    """Run a command on a node; return its data, or its problems where it is to fail."""
    done = bed.sh(node, f"sanctl {words} --output json", timeout_s=400, ok=range(256))
    found = json.loads(done.stdout)
    assert done.status == status, done.stdout + done.stderr
    assert breaches(" ".join(words.split()[:2]), done.stdout) == []
    return found["problems"] if status else found["data"]


def digest(bed: LabSession, node: str, path: str) -> str:
    """Return the SHA-256 of a file on a machine."""
    return bed.sh(node, f"sha256sum <{path}", timeout_s=120).stdout.split()[0]


def files(bed: LabSession) -> list[str]:
    """Return the files that the site has of all devices."""
    return bed.sh(SERVER, f"cd {PATH} && find . -type f -path './*/*' | sort").stdout.split()


def state(bed: LabSession) -> dict[str, str]:
    """Return the digest of each proven copy by its file; nothing may change one."""
    found = [each for each in files(bed) if not each.endswith((".json", ".partial"))]
    return {each: digest(bed, SERVER, f"{PATH}/{each}") for each in found}
