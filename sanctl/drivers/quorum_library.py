# SPDX-License-Identifier: GPL-2.0-or-later
"""Corosync's quorum and members by its libraries libquorum, libvotequorum, libcmap: no process.

corosync-quorumtool(8) asks the same questions. As a process it costs a handler more than all else
that a handler does (a quarter of a second in the laboratory), and a node that has lost a peer asks
twice for each change of the CIB, while hosts wait.

The types are those of corosync's headers quorum.h, votequorum.h, cmap.h and corotypes.h; the names
of the libraries end in the version of their interface.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.parse.corosync import DEVICE_VOTE, Membership
from sanctl.system import timed_call

_QUORUM, _VOTEQUORUM, _CMAP = "libquorum.so.5", "libvotequorum.so.8", "libcmap.so.4"
_OK, _NOT_EXIST, _DISPATCH_ONE, _TRACK_CURRENT = 1, 12, 1, 1
#: The flags of votequorum_info (votequorum.h), in the words of corosync-quorumtool: 64 is a daemon
#: that is registered, 256 the vote that it casts. In between: 128, the daemon still calls in.
_FLAGS = (
    (1, "2Node"),
    (2, "Quorate"),
    (4, "WaitForAll"),
    (64, "Qdevice"),
    (256, DEVICE_VOTE),
)
#: `nodelist.node.N` counts from 0 without gaps. With more nodes a member has no name: refused.
_MAX_NODES = 64
_NOTIFY = ctypes.CFUNCTYPE(
    None,
    ctypes.c_uint64,
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_uint32,
    ctypes.POINTER(ctypes.c_uint32),
)


class _Callbacks(ctypes.Structure):
    _fields_ = (("quorum_notify_fn", _NOTIFY),)


class _Info(ctypes.Structure):
    """struct votequorum_info."""

    _fields_ = (
        ("node_id", ctypes.c_uint),
        ("node_state", ctypes.c_uint),
        ("node_votes", ctypes.c_uint),
        ("node_expected_votes", ctypes.c_uint),
        ("highest_expected", ctypes.c_uint),
        ("total_votes", ctypes.c_uint),
        ("quorum", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("qdevice_votes", ctypes.c_uint),
        ("qdevice_name", ctypes.c_char * 255),
    )


class _Libraries(NamedTuple):
    quorum: ctypes.CDLL
    votequorum: ctypes.CDLL
    cmap: ctypes.CDLL


class _RefusedError(Exception):
    """A library answered with another code than CS_OK."""


def membership(*, within_s: float) -> Membership | None:
    """Return the partition this node is in; None where the libraries cannot say: ask the tool.

    They cannot where they are not installed, where Corosync is not running, and where it answers
    with an error, such as while it starts.

    Args:
        within_s: how long Corosync may take: one that is stopped (SIGSTOP) never answers.

    Raises:
        CommandError: no answer within that time.
    """
    libraries = load()
    if libraries is None:
        return None
    found: list[Membership] = []

    def ask() -> None:
        try:
            found.append(_ask(libraries))
        except _RefusedError:
            return

    if timed_call.errno_of(ask, within_s=within_s) is None:
        raise CommandError(Problem("SAN-CMD-002", f"no answer within {within_s:g} s: libquorum"))
    return found[0] if found else None


@cache
def load() -> _Libraries | None:
    """Load the libraries, once in a process; None where one of them is not installed."""
    try:
        return _Libraries(*(ctypes.CDLL(name) for name in (_QUORUM, _VOTEQUORUM, _CMAP)))
    except OSError:
        return None


def _ask(libraries: _Libraries) -> Membership:
    """Ask in the order of corosync-quorumtool: votes, then members with their quorum.

    The last answer says of one moment whether the partition has quorum, which nodes it has, and
    the number of that membership.
    """
    info = _votes(libraries.votequorum)
    names = _names(libraries.cmap)
    is_quorate, ring, members = _view(libraries.quorum)
    if not names.keys() >= set(members):
        # Not to be taken for a partition without that member.
        raise _RefusedError(members)
    return Membership(
        is_quorate,
        frozenset(names[node_id] for node_id in members),
        frozenset(word for bit, word in _FLAGS if info.flags & bit),
        info.highest_expected,
        info.total_votes,
        info.quorum,
        ring,
    )


def _votes(library: ctypes.CDLL) -> _Info:
    with _handle(library, "votequorum", None) as handle:
        info = _Info()
        # 0: this node.
        _require(library.votequorum_getinfo(handle, ctypes.c_uint(0), ctypes.byref(info)))
        return info


def _view(library: ctypes.CDLL) -> tuple[bool, int, list[int]]:
    seen: list[tuple[bool, int, list[int]]] = []

    def notify(_handle: int, quorate: int, ring: int, count: int, nodes: Any) -> None:
        seen.append((bool(quorate), ring, nodes[:count]))

    callbacks = _Callbacks(_NOTIFY(notify))
    kind = ctypes.c_uint32()
    with _handle(library, "quorum", ctypes.byref(callbacks), ctypes.byref(kind)) as handle:
        _require(library.quorum_trackstart(handle, ctypes.c_uint(_TRACK_CURRENT)))
        while not seen:
            _require(library.quorum_dispatch(handle, _DISPATCH_ONE))
    return seen[0]


def _names(library: ctypes.CDLL) -> dict[int, str]:
    found: dict[int, str] = {}
    with _handle(library, "cmap") as handle:
        for number in range(_MAX_NODES):
            key = f"nodelist.node.{number}"
            node_id = _node_id(library, handle, f"{key}.nodeid")
            if node_id is None:
                break
            name = _text(library, handle, f"{key}.name")
            # A reload of corosync.conf between the two may have given the number to another node.
            if name is None or _node_id(library, handle, f"{key}.nodeid") != node_id:
                raise _RefusedError(key)
            found[node_id] = name
    return found


def _node_id(library: ctypes.CDLL, handle: ctypes.c_uint64, key: str) -> int | None:
    found = ctypes.c_uint32()
    code = library.cmap_get_uint32(handle, key.encode(), ctypes.byref(found))
    return found.value if _is_there(code) else None


def _text(library: ctypes.CDLL, handle: ctypes.c_uint64, key: str) -> str | None:
    found = ctypes.c_char_p()
    if not _is_there(library.cmap_get_string(handle, key.encode(), ctypes.byref(found))):
        return None
    text = (found.value or b"").decode()
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free(found)
    return text


def _is_there(code: int) -> bool:
    if code != _NOT_EXIST:
        _require(code)
    return code == _OK


@contextmanager
def _handle(library: ctypes.CDLL, prefix: str, *arguments: object) -> Iterator[ctypes.c_uint64]:
    """Connect to one of Corosync's services; its handle is 64 bits wide."""
    handle = ctypes.c_uint64()
    with ExitStack() as stack:
        _require(getattr(library, f"{prefix}_initialize")(ctypes.byref(handle), *arguments))
        stack.callback(getattr(library, f"{prefix}_finalize"), handle)
        yield handle


def _require(code: int) -> None:
    if code != _OK:
        raise _RefusedError(code)
