# SPDX-License-Identifier: GPL-2.0-or-later
"""A second site in a laboratory: a host, with an XFS filesystem in a file of its own.

It is reached over the iscsi network, by a key that is put on the storage nodes.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.machines.spec import Network

_AUTHORIZED = "/root/.ssh/authorized_keys"


@dataclass(frozen=True, slots=True)
class SiteServer:
    """Where a site is.

    Attributes:
        site: its name for the cluster; what the cluster knows of it is removed at the end.
        server: the machine.
        image: the file there with the filesystem.
        mount: where that is mounted.
        path: the directory of the site.
        key: the private key on the storage nodes.
        size_mib: the size of the filesystem.
    """

    site: str
    server: str
    image: str
    mount: str
    path: str
    key: str
    size_mib: int


@contextlib.contextmanager
def site_server(bed: LabSession, where: SiteServer) -> Iterator[str]:
    """Make a machine the server of a site, with the nodes' key; yield its address for ssh."""
    try:
        yield make(bed, where)
    finally:
        remove(bed, where)


def remove(bed: LabSession, where: SiteServer) -> None:
    """Remove a site with its server and key; what a run that was killed has left, too."""
    bed.sh(
        bed.cluster[-1].name,
        f"sanctl site remove {where.site} --yes --accept SAN-SITE-039",
        timeout_s=60,
        ok=range(256),
    )
    for node in bed.storage:
        bed.sh(node.name, f"rm -f {where.key} {where.key}.pub")
    bed.sh(
        where.server,
        f"[ ! -e {where.image}.keys ] || mv {where.image}.keys {_AUTHORIZED};"
        # A receiver whose sender was ended may have its folder open a little longer.
        f" for try in $(seq 20); do mountpoint -q {where.mount} || break;"
        f" umount {where.mount} || sleep 0.5; done; rm -f {where.image}",
        timeout_s=60,
    )


def make(bed: LabSession, where: SiteServer) -> str:
    """Make a machine the server of a site, until `remove`; return its address for ssh."""
    first, *others = [node.name for node in bed.storage]
    bed.sh(
        where.server,
        f"truncate -s {where.size_mib}M {where.image} && mkfs.xfs -q {where.image}"
        f" && mkdir -p {where.mount} && mount -o loop {where.image} {where.mount}"
        f" && mkdir {where.path}",
        timeout_s=120,
    )
    # Stable: a node of a fault bench may lose its power at once.
    bed.sh(first, f"ssh-keygen -q -t ed25519 -N '' -f {where.key} && sync", timeout_s=60)
    public = bed.read_bytes(first, f"{where.key}.pub").decode().strip()
    secret = base64.b64encode(bed.read_bytes(first, where.key)).decode()
    for node in others:
        bed.sh(node, f"umask 077; base64 -d >{where.key} && sync", stdin=secret)
    bed.sh(
        where.server,
        f"cp -a {_AUTHORIZED} {where.image}.keys; echo '{public}' >>{_AUTHORIZED}",
    )
    return f"root@{bed.node(where.server).address(Network.ISCSI)}"
