# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what a node pings on the iscsi network, and how many addresses it reaches (ADR 12).

0 has devices leave the node for another one. So an address counts as not reached only where it was
looked at: requests were sent and no answer came, or the node has no way to it. What this node
itself could not do (no memory, no permission, a full queue) says nothing of hosts.
"""

from __future__ import annotations

import errno
import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from sanctl.errors import ConfigError, Problem

Address = IPv4Address | IPv6Address

#: Errors of a send by which the address is not reached: the interface is down, has gone or has lost
#: its address, and with it the route; or the neighbour has not answered. Hosts that would come by
#: that way do not reach this node either.
_NO_WAY = frozenset(
    {
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.EHOSTDOWN,
        errno.EADDRNOTAVAIL,
        # A kernel without IPv6, say.
        errno.EAFNOSUPPORT,
        errno.ENODEV,
        errno.ENXIO,
    }
)
_MAX_ATTEMPTS, _MAX_TIMEOUT_S = 5, 5.0
#: As Pacemaker reads times, of which it ignores what it does not understand.
_DAMPENING = re.compile(r"[0-9]+(?:ms|s|m|min)?")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


class Watch(NamedTuple):
    """What is pinged, and how; the time for an answer is that of one attempt."""

    addresses: tuple[Address, ...]
    attempts: int
    timeout_s: float
    dampening: str


class Look(NamedTuple):
    """One look: which addresses have answered, and what failed, with its errno, for which."""

    answered: frozenset[Address]
    errors: tuple[tuple[Address, int], ...]


def parse_watch(*, host_list: str, attempts: str, timeout: str, dampen: str) -> Watch:
    """Return the agent's parameters.

    Raises:
        ConfigError: SAN-AGENT-018, one of them cannot be used.
    """
    addresses = tuple(dict.fromkeys(_address(word) for word in host_list.split()))
    if not addresses:
        raise _refused("host_list", host_list, "is empty: there is no address to ping")
    if not _DAMPENING.fullmatch(dampen):
        raise _refused("dampen", dampen, "is no time, as '8s' is")
    times = _number("attempts", attempts, _MAX_ATTEMPTS)
    if times != int(times):
        raise _refused("attempts", attempts, "is no whole number")
    timeout_s = _number("timeout", timeout, _MAX_TIMEOUT_S)
    return Watch(addresses, int(times), timeout_s, dampen)


def count(watch: Watch, look: Look) -> int | None:
    """Return how many addresses have answered; None: none has, and not each was looked at.

    Some that answer are enough, whatever happened to the others: what follows from the count
    distinguishes none from any.
    """
    answered = sum(each in look.answered for each in watch.addresses)
    if not answered and any(number not in _NO_WAY for _, number in look.errors):
        return None
    return answered


def silent(watch: Watch, look: Look) -> list[str]:
    """Return the addresses that have not answered."""
    return [str(each) for each in watch.addresses if each not in look.answered]


def hindrances(look: Look) -> list[str]:
    """Return, in words, why addresses could not be looked at, each once."""
    return list(
        dict.fromkeys(
            f"{address}: {errno.errorcode.get(number, number)}"
            for address, number in look.errors
            if number not in _NO_WAY
        )
    )


def _address(word: str) -> Address:
    try:
        return ip_address(word)
    except ValueError:
        raise _refused("host_list", word, "is no IP address, and names are not resolved") from None


def _number(name: str, text: str, most: float) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0.0 < value <= most:
        raise _refused(name, text, f"is no number above 0 and up to {most:g}")
    return value


def _refused(name: str, value: str, why: str) -> ConfigError:
    return ConfigError(
        Problem(
            "SAN-AGENT-018",
            f"the parameter {name} of the watch over the iscsi network: {value!r} {why}",
            "put sanctl_pacemaker_reach_targets right in the inventory, and run the playbook",
        )
    )
