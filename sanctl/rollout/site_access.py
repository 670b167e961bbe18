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
from typing import Any

from sanctl.system.runner import LocalRunner

#: So many receivers stay listed: those of the releases that nodes of several clusters may have.
RECEIVERS = 16
_KEY = re.compile(r"(?:^|\s)((?:ssh|ecdsa|sk)-[a-z0-9@.-]+ AAAA[A-Za-z0-9+/]+={0,2})(?=\s|$)")
_DIGEST = re.compile(r"[0-9a-f]{64}")
#: One option of a line of authorized_keys, and a comma or the blank behind it.
_OPTION = re.compile(r'([A-Za-z0-9-]+(?:="(?:\\.|[^"\\])*")?)(,|\s+)')
#: What says from where, and how long, a key is let in: it is kept where a line is replaced.
_KEPT_OPTIONS = ("from", "expiry-time")
#: The first releases had no receiver_source.
_DIGEST_OF_RECEIVER = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from sanctl.drivers import site_link
source = getattr(site_link, "receiver_source", None)
script = site_link.receiver_script(source()) if source else site_link.receiver_script()
print(hashlib.sha256(script).hexdigest())
"""
_TIMEOUT_S = 60.0


def digest_command(python: str, folder: str) -> list[str]:
    """Return what prints the SHA-256 of the receiver that the release in a folder sends."""
    return [python, "-I", "-c", _DIGEST_OF_RECEIVER, folder]


def receiver_digest(wheel: str) -> str:
    """Return the SHA-256 of the receiver that nodes with a wheel's release send to a site."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        done = LocalRunner().run(
            digest_command(sys.executable, folder),
            timeout_s=_TIMEOUT_S,
            ok=range(256),
        )
    digest = done.stdout.strip()
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{wheel} has no receiver for second sites: {done.stderr.strip()[-300:]}")
    return digest


def receivers(present: str, digests: Sequence[str]) -> str:
    """Return the list of the receivers that a site runs, with some more.

    Those come last, also where they were in the list: the oldest that falls out of it is the one
    that was not rolled out for the longest time.

    Args:
        present: the list as it is; empty: there is none.
        digests: the SHA-256 of each receiver, the newest last.
    """
    wanted = [*dict.fromkeys(reversed([each for each in digests if _DIGEST.fullmatch(each)]))]
    known = [line for line in present.splitlines() if _DIGEST.fullmatch(line)]
    known = [*(each for each in known if each not in wanted), *reversed(wanted)][-RECEIVERS:]
    return "\n".join(
        ("# Written by Ansible for sanctl: the receivers that nodes may run.", *known, "")
    )


def sent_receivers(results: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Say what nodes send to sites, as they were asked with `digest_command`.

    Args:
        results: Ansible's, of a loop over pairs of a node and one of its releases, `previous` or
            `current`. A node that was not reached has said nothing.

    Returns:
        `digests`, those of releases that were current first, and `unlisted`, the nodes of whose
        current release nothing is known.
    """
    said = {
        (str(node), str(release)): str(each.get("stdout", "")).strip()
        for each in results
        for node, release in [each["sanctl_second_site_release"]]
    }
    known = {each: digest for each, digest in said.items() if _DIGEST.fullmatch(digest)}
    return {
        "digests": [
            known[each] for each in sorted(known, key=lambda each: (each[1] == "current", each))
        ],
        "unlisted": sorted({node for node, _ in said if (node, "current") not in known}),
    }


def unrestricted(present: str, cluster: str, nodes: Sequence[str]) -> list[str]:
    """Return the nodes that have no line of their own yet, and may have one that was made by hand.

    What their releases send has to be in the list before their keys run nothing but it. Of the
    others nothing is asked: a node could have any program listed for its key.

    Args:
        present: authorized_keys as it is; empty: there is none.
        cluster: what tells the cluster from all others.
        nodes: all storage nodes.
    """
    own = {node for node, _ in _own_lines(present, cluster)}
    return [node for node in nodes if node not in own]


def authorized_keys(
    present: str,
    cluster: str,
    keys: Mapping[str, str],
    nodes: Sequence[str],
    command: str,
    *,
    unlisted: Sequence[str] = (),
) -> str:
    """Return an authorized_keys file in which the nodes of a cluster may run one command alone.

    The keys of nodes that could not be asked stay, those of nodes that are no more go, and what
    others have put there stays; but not a line with the key of a node, which would let it do more.
    From where and how long that line lets the key in holds of the node's line as well.

    Args:
        present: the file as it is; empty: there is none.
        cluster: what tells the cluster from all others.
        keys: the public keys of the nodes that were asked, by node; empty: not known.
        nodes: all storage nodes.
        command: the program.
        unlisted: nodes of which it is not known that the command runs what they send. While there
            are some no line that was made by hand goes: nodes may share the key in it.
    """
    mark = _mark_of(cluster)
    of_node: dict[str, str] = {}
    kept: dict[str, list[str]] = {}
    for node, line in _own_lines(present, cluster):
        if node in nodes:
            of_node[node] = _key_of(line)
            kept.setdefault(node, []).append(_kept_options(line))
    of_node |= {node: key for node, text in keys.items() if (key := _key_of(text))}
    ours = {*of_node.values()}
    # Of these the line that was made by hand stays.
    held = {
        key
        for line in present.splitlines()
        if unlisted and (key := _key_of(line)) in ours and not _is_restricted(line)
    }
    lines: list[str] = []
    by_hand: dict[str, list[str]] = {}
    for line in present.splitlines():
        if mark.search(line) and _is_restricted(line):
            continue
        key = _key_of(line)
        if key in ours and key not in held:
            by_hand.setdefault(key, []).append(_kept_options(line))
        else:
            lines.append(line)
    for node, key in sorted(of_node.items()):
        if key in held and node not in kept:
            continue
        options = kept.get(node) or by_hand.get(key) or [""]
        lines += (
            f'{each}restrict,command="{command}" {key} sanctl {cluster} {node}'
            for each in ([""] if "" in options else dict.fromkeys(options))
        )
    return "".join(f"{line}\n" for line in lines)


def _mark_of(cluster: str) -> re.Pattern[str]:
    return re.compile(rf" sanctl {re.escape(cluster)} (?P<node>\S+)$")


def _own_lines(present: str, cluster: str) -> list[tuple[str, str]]:
    """Return the lines that the rollout has written for a cluster, each with its node."""
    mark = _mark_of(cluster)
    return [
        (found["node"], line)
        for line in present.splitlines()
        if (found := mark.search(line)) and _key_of(line) and _is_restricted(line)
    ]


def _options_of(line: str) -> list[str]:
    """Return the options of a line of authorized_keys."""
    found: list[str] = []
    at = len(line) - len(line.lstrip())
    if re.match(r"(?:ssh|ecdsa|sk)-", line[at:]):
        return found
    while option := _OPTION.match(line, at):
        found.append(option[1])
        at = option.end()
        if option[2] != ",":
            break
    return found


def _is_restricted(line: str) -> bool:
    """Tell whether a line lets its key run one command alone."""
    return any(option.lower().startswith("command=") for option in _options_of(line))


def _kept_options(line: str) -> str:
    """Return the options of a line that stay where it is replaced, each with a comma behind it."""
    return "".join(
        f"{option},"
        for option in _options_of(line)
        if option.partition("=")[0].lower() in _KEPT_OPTIONS
    )


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
