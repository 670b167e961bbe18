#!/usr/bin/python3 -I
# SPDX-License-Identifier: GPL-2.0-or-later
"""Forced command of the keys that cluster nodes log in with: runs the receivers of a list alone.

A node sends the receiver of its release with each connection, and asks for a Python that runs it
(sanctl/drivers/site_connection.py). sshd starts this program instead. It reads what is sent, and
runs it only if its SHA-256 is in the list, which the rollout writes: so a key that was stolen runs
no other program here. It needs nothing but Python's standard library (3.9 or later).

Usage: site_receive.py LIST, with the node's command in SSH_ORIGINAL_COMMAND.
"""

import hashlib
import json
import os
import re
import struct
import sys
import zlib

#: How many bytes follow, in the command that a node asks for; nothing else of it is used.
_LENGTH = re.compile(r"python3 -c 'import os,zlib\n.*?while len\(d\)<([0-9]{1,7}):\n", re.DOTALL)
#: More than any receiver has, packed and not.
_MOST_BYTES, _MOST_TEXT_BYTES = 1 << 20, 4 << 20


class Refusal(Exception):
    """What came is not run, and why."""


def length_of(command: str) -> int:
    """Return how many bytes a node is about to send."""
    found = _LENGTH.match(command)
    if found is None or int(found[1]) > _MOST_BYTES:
        raise Refusal("this key is for copies by sanctl alone, and another command was asked for")
    return int(found[1])


def read_packed(length: int) -> bytes:
    """Read what the node sends, and no byte of what follows."""
    packed = b""
    while len(packed) < length:
        part = os.read(0, length - len(packed))
        if not part:
            raise SystemExit(1)
        packed += part
    return packed


def unpacked(packed: bytes) -> bytes:
    """Return the receiver's text."""
    try:
        return zlib.decompressobj().decompress(packed, _MOST_TEXT_BYTES)
    except zlib.error:
        raise Refusal("what was sent is no receiver") from None


def check(text: bytes, path: str) -> None:
    """Raise Refusal unless a receiver is in the list."""
    try:
        with open(path, encoding="ascii") as file:
            listed = {line.split("#")[0].strip() for line in file}
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"the list of receivers, {path}, cannot be read: {error}") from None
    digest = hashlib.sha256(text).hexdigest()
    if digest not in listed:
        raise Refusal(
            f"the receiver of this node's release, {digest}, is not in the server's {path}: "
            "run the playbook of that release for the site's server"
        )


def main() -> int:
    """Run the receiver that comes, or say why not; return the exit status."""
    os.umask(0o077)
    try:
        text = unpacked(read_packed(length_of(os.environ.get("SSH_ORIGINAL_COMMAND", ""))))
        check(text, sys.argv[1])
    except Refusal as error:
        body = json.dumps({"code": "SAN-SITE-034", "error": str(error)}).encode()
        os.write(1, struct.pack(">cI", b"J", len(body)) + body)
        sys.stderr.write(f"{error}\n")
        return 1
    exec(compile(text, "sanctl", "exec"), {"__name__": "__main__"})  # noqa: S102 - of the list
    return 0


if __name__ == "__main__":
    sys.exit(main())
