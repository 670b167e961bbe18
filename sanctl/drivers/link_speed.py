# SPDX-License-Identifier: GPL-2.0-or-later
"""Speed of the interface with one of this node's addresses, for the resync rates of DRBD."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from sanctl.system.files import read_text
from sanctl.system.runner import Runner

_TIMEOUT_S = 10.0
# netdevice(7): a name of 16 bytes, and the address as struct sockaddr_in, in 40 bytes.
_SIOCGIFADDR, _REQUEST, _ADDRESS = 0x8915, "16s24x", slice(20, 24)


def bytes_per_s(runner: Runner, address: str) -> int | None:
    """Return the speed of the interface that has an address, None where that is not known.

    A virtual interface has no speed; the kernel then says -1, or refuses the read.
    """
    name = _interface_by_first_address(address) or _interface_by_program(runner, address)
    if name is None:
        return None
    try:
        megabits = read_text(f"/sys/class/net/{name}/speed").strip()
    except OSError:
        return None
    return int(megabits) * 1_000_000 // 8 if megabits.isdecimal() and int(megabits) else None


def _interface_by_first_address(address: str) -> str | None:
    """Return the interface whose first address this is; without a process, for many starts."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack(_REQUEST, name.encode()))
            except OSError:
                continue  # It has no address.
            if socket.inet_ntoa(answer[_ADDRESS]) == address:
                return name
    return None


def _interface_by_program(runner: Runner, address: str) -> str | None:
    done = runner.run(
        ["ip", "-oneline", "address", "show", "to", address], timeout_s=_TIMEOUT_S, ok=range(256)
    )
    words = done.stdout.split()
    return os.path.basename(words[1]) if len(words) > 1 else None
