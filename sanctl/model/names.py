# SPDX-License-Identifier: GPL-2.0-or-later
"""Checked names of devices, nodes, pools and initiators (IQN), and sizes with their units.

A value of these types is always valid: text is parsed once, where it enters. No I/O, and light
imports, as the resource agents import this module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from sanctl.errors import Problem, UsageError

_DEVICE = re.compile(r"[a-z][a-z0-9-]{0,30}")
_NODE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
_POOL = re.compile(r"[a-z][a-z0-9-]{0,30}")
# RFC 3720 3.2.6.3.1. The part after the colon is free text of the naming authority, made of what
# stringprep leaves of ASCII; an underscore, which some hosts use, is refused by the RFC and LIO.
_IQN = re.compile(
    r"iqn\.[0-9]{4}-(?:0[1-9]|1[0-2])"
    r"(?:\.[a-z0-9]+(?:-+[a-z0-9]+)*)+"
    r"(?::[a-z0-9.:-]+)?"
)
_EUI = re.compile(r"eui\.[0-9a-f]{16}")
_IQN_MAX_BYTES = 223
_SIZE = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6}))?\s*(?:([bkmgtp])(?:i?b)?)?", re.IGNORECASE)

# Names that would collide with other names of sanctl or DRBD: `sanctl-NAME` is the clone and the
# node attribute of a device, and `sanctl-pool`, `sanctl-delete-X`, `sanctl-minor-3` and
# `sanctl-votes` are taken; drbdadm reads `all` as every resource and `minor-3` as a minor.
_RESERVED_WORDS = frozenset({"all", "pool", "pools", "sanctl", "votes"})
_RESERVED_PREFIXES = (
    "sanctl-",
    "pool-",
    "minor-",
    "delete-",
    "discard-",
    "dropped-member",
    "fence-",
    "outdated-",
    "revive-",
)
_RESERVED_SUFFIXES = (
    "-meta",
    "-params",
    "-replicas",
    "-outdated",
    "-reach",
    "-prefer",
    "-move",
    "-gate",
)

_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_BLOCK_BYTES = 4096
# The loop device, ext4 and XFS all hold at least this much in one file.
_MAX_BYTES = 1 << 53


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class CheckedName:
    """A name that is always valid: what it must be each kind of name says for itself."""

    value: str

    def __post_init__(self) -> None:
        """Raise UsageError for a value that is no such name."""
        raise NotImplementedError

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the name, or raise UsageError."""
        return cls(value=text)

    def __str__(self) -> str:
        return self.value


class DeviceName(CheckedName):
    """The name of a device: a Pacemaker resource, a DRBD resource and a part of an IQN."""

    __slots__ = ()

    def __post_init__(self) -> None:
        text = self.value
        if not _DEVICE.fullmatch(text):
            raise UsageError(
                Problem(
                    "SAN-NAME-001",
                    f"device name {text!r} is not valid",
                    "use 1 to 31 of a-z, 0-9 and '-', the first one a letter",
                )
            )
        if (
            text in _RESERVED_WORDS
            or text.startswith(_RESERVED_PREFIXES)
            or text.endswith(_RESERVED_SUFFIXES)
            or text.endswith("-")
        ):
            raise UsageError(
                Problem(
                    "SAN-NAME-002",
                    f"device name {text!r} is reserved",
                    "sanctl, Pacemaker or DRBD use it for something else: choose another",
                )
            )


class NodeName(CheckedName):
    """The name of a cluster node, as `uname -n` and Corosync have it."""

    __slots__ = ()

    def __post_init__(self) -> None:
        if not _NODE.fullmatch(self.value):
            raise UsageError(
                Problem(
                    "SAN-NAME-003",
                    f"node name {self.value!r} is not valid",
                    "use 1 to 63 of a-z, 0-9, '-' and '.', as `uname -n` prints it on the node",
                )
            )


class PoolName(CheckedName):
    """The name of a storage pool in cluster.toml."""

    __slots__ = ()

    def __post_init__(self) -> None:
        if not _POOL.fullmatch(self.value):
            raise UsageError(
                Problem(
                    "SAN-NAME-004",
                    f"pool name {self.value!r} is not valid",
                    "use 1 to 31 of a-z, 0-9 and '-', the first one a letter",
                )
            )


class Iqn(CheckedName):
    """An iSCSI name (`iqn.` or `eui.`), in lower case as RFC 3720 compares them."""

    __slots__ = ()

    def __post_init__(self) -> None:
        text = self.value
        if len(text.encode()) > _IQN_MAX_BYTES:
            raise UsageError(
                Problem(
                    "SAN-NAME-005",
                    f"iSCSI name {text[:40]!r}... is longer than {_IQN_MAX_BYTES} bytes",
                    "RFC 3720 allows no more",
                )
            )
        if not (_IQN.fullmatch(text) or _EUI.fullmatch(text)):
            raise UsageError(
                Problem(
                    "SAN-NAME-005",
                    f"iSCSI name {text!r} is not valid",
                    "it looks like iqn.YYYY-MM.reversed.domain:name, of a-z, 0-9, '.', '-' and ':'",
                )
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the name in lower case, or raise UsageError.

        LIO lower-cases the name a host logs in with, so an access list must hold it that way.
        """
        lowered = text.lower()
        if not text.isascii() or not (_IQN.fullmatch(lowered) or _EUI.fullmatch(lowered)):
            # Refused with the spelling of the input, so that an operator recognises it.
            return cls(value=text)
        return cls(value=lowered)


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class ByteSize:
    """A size of a device in bytes: positive, and a multiple of 4 KiB."""

    bytes: int

    def __post_init__(self) -> None:
        if self.bytes <= 0 or self.bytes % _BLOCK_BYTES or self.bytes > _MAX_BYTES:
            raise UsageError(
                Problem(
                    "SAN-NAME-006",
                    f"size of {self.bytes} bytes is not possible",
                    "it must be a positive multiple of 4 KiB, at most 8 PiB",
                )
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `10G`, `512MiB`, `1.5T` or plain bytes; units are binary, as lvm's are.

        Raises:
            UsageError: not a number, or not a positive multiple of 4 KiB.
        """
        return cls(bytes=parse_bytes(text))

    def __int__(self) -> int:
        return self.bytes

    def __str__(self) -> str:
        return format_bytes(self.bytes)


def parse_bytes(text: str) -> int:
    """Read a number of bytes as `ByteSize.parse` does, without the limits of a device's size.

    Raises:
        UsageError: not a number, or no whole number of bytes.
    """
    match = _SIZE.fullmatch(text.strip()) if text.isascii() else None
    if match is None:
        raise UsageError(
            Problem(
                "SAN-NAME-006",
                f"size {text!r} is not a size",
                "write a number and a unit: 512M, 10G, 1.5T (binary units; none means bytes)",
            )
        )
    whole, fraction, unit = match.groups(default="")
    # Integers throughout: a float would round a size nobody asked for.
    scale = 1 << _UNITS[unit.lower()]
    numerator = int(whole + fraction) * scale
    denominator = 10 ** len(fraction)
    if numerator % denominator:
        raise UsageError(
            Problem(
                "SAN-NAME-006",
                f"size {text!r} is not a whole number of bytes",
                "it must be a positive multiple of 4 KiB, at most 8 PiB",
            )
        )
    return int(numerator // denominator)


def format_bytes(count: int) -> str:
    """Format a number of bytes for display: `10 GiB`, `1.5 TiB`, `0 B`.

    Rounded to one decimal, always downwards, so that `free` is never more than there is.
    """
    if count < 0:
        return f"-{format_bytes(-count)}"
    for unit, shift in (("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            tenths = count * 10 >> shift
            whole, tenth = divmod(tenths, 10)
            return f"{whole}.{tenth} {unit}" if tenth else f"{whole} {unit}"
    return f"{count} B"
