# SPDX-License-Identifier: GPL-2.0-or-later
"""The states of all replicas on a node as one value, which the node publishes as one attribute.

Light: agents import it.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Mapping

#: The private node attribute with the states of a node's replicas; never in the CIB.
STATES_ATTRIBUTE = "sanctl.states"
#: Up to here the value is text that an operator can read: some 20 replicas. Not more, because
#: pacemaker-attrd logs each change, the old value and the new one.
_READABLE_BYTES = 4 << 10
# An argument of a program has 128 KiB at most (execve(2), MAX_ARG_STRLEN); 500 replicas that are
# all different take some 25.
_MAX_BYTES = 96 << 10
_MAX_UNPACKED_BYTES = 16 << 20
_PACKED = "z:"
_TOO_LARGE = "?"
#: Of a node without replicas: it is published, too. A deletion would make the attribute where there
#: is none yet, and one made by a deletion is not private, for good (Pacemaker 3.0, attrd).
NO_STATES = "-"
#: What would end an entry, or what attrd_updater would print in another way.
_UNFIT = re.compile(r'[;"<>&\n\r]')


def pack(states: Mapping[str, str]) -> str:
    """Return the value of a node's STATES_ATTRIBUTE, such as `vol1 disk=UpToDate …;vol2 …`.

    Args:
        states: each replica's state as text, by the device's name. One that does not fit into the
            value is left out: it is not known then.

    Returns:
        NO_STATES where there are none.
    """
    text = ";".join(
        f"{name} {state}" for name, state in sorted(states.items()) if not _UNFIT.search(state)
    )
    if len(text) > _READABLE_BYTES:
        compressed = zlib.compress(text.encode())
        text = f"{_PACKED}{binascii.b2a_base64(compressed, newline=False).decode()}"
    return (text or NO_STATES) if len(text) <= _MAX_BYTES else _TOO_LARGE


def unpack(text: str) -> dict[str, str]:
    """Return the states by device; nothing of a value that cannot be read: it says nothing."""
    if text.startswith(_PACKED):
        try:
            unpacker = zlib.decompressobj()
            compressed = binascii.a2b_base64(text.removeprefix(_PACKED), strict_mode=True)
            text = unpacker.decompress(compressed, _MAX_UNPACKED_BYTES).decode()
        except (ValueError, zlib.error):
            return {}
        if not unpacker.eof:
            return {}
    found = (entry.partition(" ") for entry in text.split(";"))
    return {name: state for name, _, state in found if name and state}
