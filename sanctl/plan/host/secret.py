# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what a file of a host's CHAP secrets holds, and which secrets are accepted.

The file has a line `secret = …`, by which the host authenticates, and with mutual CHAP a line
`mutual = …`, by which the target does. No message names a secret.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# RFC 7143 12.1.3: 96 bits at least. Windows takes 12 to 16 bytes.
_MIN, _MAX = 12, 64
# What no shell, no file of settings and no program of a host takes for something else.
_SECRET = re.compile(r"[A-Za-z0-9._:@+/=%^~-]+")
_KEYS = frozenset({"secret", "mutual"})


class HostSecrets(NamedTuple):
    """The secrets of one host; `mutual` is empty where the target does not authenticate."""

    secret: str
    mutual: str = ""

    def __repr__(self) -> str:
        return "HostSecrets(…)"  # Neither in a log nor in a traceback.


def read_host_secrets(text: str, *, is_mutual: bool) -> HostSecrets | str:
    """Return the secrets in a file's text, or in words what is wrong with it."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or key.strip() not in _KEYS or key.strip() in found:
            return f"line {number} is neither 'secret = …' nor 'mutual = …', or there twice"
        found[key.strip()] = value.strip()
    for key in ("secret", *(("mutual",) if is_mutual else ())):
        problem = secret_problem(found.get(key, ""))
        if problem is not None:
            return f"'{key}': {problem}"
    if is_mutual and found["secret"] == found["mutual"]:
        return "'mutual' is the same as 'secret': who knows one could answer for the other"
    return HostSecrets(found["secret"], found["mutual"] if is_mutual else "")


def secret_problem(secret: str) -> str | None:
    """Return why a secret is not accepted, None if it is."""
    if not secret:
        return "there is none"
    if not _MIN <= len(secret) <= _MAX:
        return f"it has {len(secret)} characters, and {_MIN} to {_MAX} are accepted"
    if not _SECRET.fullmatch(secret):
        return "it has other characters than letters, digits and . _ : @ + / = % ^ ~ -"
    if secret.startswith("NULL"):
        return "it begins with NULL, which the kernel takes for no secret"
    return None
