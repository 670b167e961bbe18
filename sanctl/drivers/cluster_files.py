# SPDX-License-Identifier: GPL-2.0-or-later
"""Digests of the files that are to be the same on all nodes: cluster.toml and DRBD's secret."""

from __future__ import annotations

from sanctl.system.files import read_text_or

_TOPOLOGY = "/etc/sanctl/cluster.toml"
_SECRET = "/etc/sanctl/drbd.secret"  # noqa: S105 - its path, not the secret
#: So few that a guess at the secret is not confirmed by them.
_SECRET_DIGITS, _TOPOLOGY_DIGITS = 4, 8


def topology_digest() -> str:
    """Return hex digits that identify what cluster.toml says; empty without one.

    Comments and blank lines say nothing.

    Raises:
        OSError: it cannot be read.
    """
    import hashlib  # noqa: PLC0415 - not for who imports this module

    lines = map(str.strip, read_text_or(_TOPOLOGY, "").splitlines())
    text = "\n".join(line for line in lines if line and not line.startswith("#"))
    return hashlib.sha256(text.encode()).hexdigest()[:_TOPOLOGY_DIGITS] if text else ""


def secret_digest() -> str:
    """Return hex digits by which nodes see whether they have the same secret; empty without one.

    The secret is the key: every user who may ask the cluster can read what a node publishes.

    Raises:
        OSError: it cannot be read.
    """
    import hmac  # noqa: PLC0415 - not for who imports this module

    secret = read_text_or(_SECRET, "").strip()
    if not secret:
        return ""
    # DRBD's secrets are digests of UUIDs by this key: this is none.
    return hmac.new(secret.encode(), b"which secret", "sha256").hexdigest()[:_SECRET_DIGITS]
