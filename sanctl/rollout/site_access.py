# SPDX-License-Identifier: GPL-2.0-or-later
"""How nodes get in at a second site: their keys, the receivers that it runs, what is to be added.

The rollout's; `sanctl site add` does the same for a server that was set up by hand.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence

from sanctl.system.runner import LocalRunner

#: So many receivers stay listed: those of the releases that nodes of several clusters may have.
RECEIVERS = 16
_KEY = re.compile(r"(?:^|\s)((?:ssh|ecdsa|sk)-[a-z0-9@.-]+ AAAA[A-Za-z0-9+/]+={0,2})(?=\s|$)")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIGEST_OF_RECEIVER = """
import hashlib
from sanctl.drivers import site_link
script = site_link.receiver_script(site_link.receiver_source())
print(hashlib.sha256(script).hexdigest())
"""
_TIMEOUT_S = 60.0


def receiver_digest(wheel: str) -> str:
    """Return the SHA-256 of the receiver that nodes with a wheel's release send to a site."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        program = f"import sys; sys.path.insert(0, {folder!r})"
        done = LocalRunner().run(
            [sys.executable, "-I", "-c", program + _DIGEST_OF_RECEIVER],
            timeout_s=_TIMEOUT_S,
            ok=range(256),
        )
    digest = done.stdout.strip()
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{wheel} has no receiver for second sites: {done.stderr.strip()[-300:]}")
    return digest


def receivers(present: str, digest: str) -> str:
    """Return the list of the receivers that a site runs, with one more, which is listed last.

    Args:
        present: the list as it is; empty: there is none.
        digest: the SHA-256 of the receiver.
    """
    known = [line for line in present.splitlines() if _DIGEST.fullmatch(line)]
    if digest not in known:
        known = [*known, digest][-RECEIVERS:]
    return "\n".join(
        ("# Written by Ansible for sanctl: the receivers that nodes may run.", *known, "")
    )


def authorized_keys(
    present: str, cluster: str, keys: Mapping[str, str], nodes: Sequence[str], command: str
) -> str:
    """Return an authorized_keys file in which the nodes of a cluster may run one command alone.

    The keys of nodes that could not be asked stay, those of nodes that are no more go, and what
    others have put there stays; but not a line with the key of a node, which would let it do more.

    Args:
        present: the file as it is; empty: there is none.
        cluster: what tells the cluster from all others: its IQN prefix.
        keys: the public keys of the nodes that were asked, by node; empty: not known.
        nodes: all storage nodes.
        command: the program.
    """
    mark = re.compile(rf" sanctl {re.escape(cluster)} (?P<node>\S+)$")
    of_node: dict[str, str] = {}
    others: list[str] = []
    for line in present.splitlines():
        found, key = mark.search(line), _key_of(line)
        if found is None:
            others.append(line)
        elif key and found["node"] in nodes:
            of_node[found["node"]] = key
    of_node |= {node: key for node, text in keys.items() if (key := _key_of(text))}
    ours = {*of_node.values()}
    lines = [line for line in others if _key_of(line) not in ours]
    lines += (
        f'restrict,command="{command}" {of_node[node]} sanctl {cluster} {node}'
        for node in sorted(of_node)
    )
    return "".join(f"{line}\n" for line in lines)


def _key_of(line: str) -> str:
    """Return the key of a line of authorized_keys, its type and itself; empty: it has none."""
    if line.lstrip().startswith("#"):
        return ""
    found = _KEY.findall(line)
    return str(found[-1]) if found else ""


def site_changes(listed: str, sites: Sequence[Mapping[str, str]]) -> list[dict[str, object]]:
    """Say what makes the cluster's sites those of the inventory. Others that it has stay.

    Args:
        listed: output of `sanctl site list --output json`.
        sites: the inventory's (site_variables.py).

    Returns:
        Of each that is to be added or is elsewhere now its `host`, and the `command` without the
        fingerprint of the server's key.
    """
    known = {each["name"]: (each["address"], each["path"]) for each in json.loads(listed)["data"]}
    changes: list[dict[str, object]] = []
    for site in sites:
        wanted = (site["address"], site["path"])
        if known.get(site["name"]) == wanted:
            continue
        verb = "set" if site["name"] in known else "add"
        words = ["site", verb, site["name"], "--ssh", wanted[0], "--path", wanted[1]]
        changes.append({"host": site["host"], "command": words})
    return changes
