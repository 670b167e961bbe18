# SPDX-License-Identifier: GPL-2.0-or-later
"""A host whose filesystems hooks of restore points freeze, by the samples of the documentation."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.machines.spec import Network

NODES = ("n1", "n2")
FOLDER = "/etc/sanctl/hooks.d"
_KEY, _KNOWN = "/etc/sanctl/hook_key", "/etc/sanctl/hook_known_hosts"
_SAMPLES = Path(__file__).parents[2] / "docs/samples/hooks"
_KEYS = "/root/.ssh/authorized_keys"
_KEYS_BEFORE = "/var/tmp/hook-keys.before"


def put(bed: LabSession, node: str, path: str, text: str, mode: str = "0700") -> None:
    """Write a file."""
    folder = path.rpartition("/")[0]
    bed.sh(node, f"mkdir -p {folder} && cat >{path} && chmod {mode} {path}", stdin=text)


def hook(bed: LabSession, name: str, text: str) -> None:
    """Put a hook on both storage nodes; `freeze` in its text is the sample."""
    for node in NODES:
        put(bed, node, f"{FOLDER}/{name}", f"#!/bin/sh\n{text}\n")


def let_freeze(bed: LabSession, host: str, mounts: Sequence[str]) -> None:
    """Let the storage nodes freeze these filesystems of a host, with the hook `freeze`."""
    sample = (_SAMPLES / "sanctl-quiesce").read_text()
    put(bed, host, "/usr/local/sbin/sanctl-quiesce", sample, "0755")
    bed.sh("n1", f"rm -f {_KEY}; ssh-keygen -q -t ed25519 -N '' -f {_KEY}", timeout_s=60)
    public = bed.read_bytes("n1", f"{_KEY}.pub").decode().strip()
    secret = base64.b64encode(bed.read_bytes("n1", _KEY)).decode()
    bed.sh("n2", f"umask 077; base64 -d >{_KEY}", stdin=secret)
    forced = f'command="/usr/local/sbin/sanctl-quiesce {" ".join(mounts)}",restrict {public}'
    bed.sh(host, f"cp -a {_KEYS} {_KEYS_BEFORE} && cat >>{_KEYS}", stdin=f"{forced}\n")
    address = bed.node(host).address(Network.ISCSI)
    sample = (_SAMPLES / "freeze-over-ssh").read_text().replace("192.0.2.100", str(address))
    for node in NODES:
        bed.sh(node, f"ssh-keyscan -t ed25519 {address} >{_KNOWN}", timeout_s=60)
        put(bed, node, f"{FOLDER}/freeze", sample)


def forget(bed: LabSession, host: str) -> None:
    """Take back what `let_freeze` has put there, and all hooks."""
    bed.sh(host, f"mv {_KEYS_BEFORE} {_KEYS}", ok=range(256))
    for node in NODES:
        bed.sh(node, f"rm -rf {_KEY} {_KEY}.pub {_KNOWN} {FOLDER}")


def needs_recovery(bed: LabSession, node: str, file: str) -> bool:
    """Whether ext4 in a restore point would have to replay its journal."""
    return "needs_recovery" in bed.sh(node, f"dumpe2fs -h {file} 2>/dev/null").stdout


def is_frozen(bed: LabSession, host: str, mount: str) -> bool:
    """Whether a write to a host's filesystem waits."""
    # One that waits cannot be killed.
    touch = f"(touch {mount}/probe && touch /run/probe) >/dev/null 2>&1 &"
    done = bed.sh(host, f"rm -f /run/probe; {touch} sleep 2; test -e /run/probe", ok=(0, 1))
    return done.status == 1
