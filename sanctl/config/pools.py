# SPDX-License-Identifier: GPL-2.0-or-later
"""The [pools] tables of cluster.toml: path, UUID, nodes, and the disks of a flash cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import PurePosixPath

from sanctl.config.document import Document
from sanctl.config.nodes import Claims
from sanctl.errors import UsageError
from sanctl.model.cache_policy import CacheMode
from sanctl.model.names import NodeName, PoolName
from sanctl.model.topology import NodeRole, Pool, PoolCache, PoolFilesystem

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Characters that need no quoting in a shell, drbd.conf, a CIB attribute or a log line.
_PATH = re.compile(r"/[A-Za-z0-9._+/-]+")
# Where the kernel, or a boot, makes all anew.
_NOT_ON_A_DISK = tuple(map(PurePosixPath, ("/dev", "/proc", "/run", "/sys", "/var/run")))
_DEVICE = re.compile(r"/dev/[A-Za-z0-9._+/:-]+")


def read_pool(document: Document, name: str, known: Sequence[str], taken: Claims) -> Pool | None:
    """Return a pool, None where it has problems."""
    path = ("pools", name)
    before = len(document.problems)
    if not document.table(path, known=("path", "uuid", "nodes", "cache")):
        return None
    try:
        parsed: PoolName | None = PoolName.parse(name)
    except UsageError as error:
        document.note_name(path, error)
        parsed = None
    where = _pool_path(document, path)
    uuid = document.text((*path, "uuid"), code="SAN-CONF-017", hint="`uuidgen` makes one")
    if uuid is not None and not _UUID.fullmatch(uuid):
        document.note("SAN-CONF-017", (*path, "uuid"), f"{uuid!r} is not a uuid in lower case")
    cache = _pool_cache(document, (*path, "cache")) if document.has((*path, "cache")) else None
    members = _pool_nodes(document, (*path, "nodes"), known, taken)
    if not (parsed and where and uuid) or len(document.problems) > before:
        return None
    return Pool(name=parsed, path=where, uuid=uuid, nodes=members, cache=cache)


def _pool_path(document: Document, path: tuple[str, ...]) -> PurePosixPath | None:
    text = document.text(
        (*path, "path"), code="SAN-CONF-016", hint="a directory on a mounted filesystem"
    )
    if text is None:
        return None
    where = PurePosixPath(text)
    if not _PATH.fullmatch(text) or ".." in where.parts or str(where) != text:
        document.note(
            "SAN-CONF-016",
            (*path, "path"),
            f"{text!r} is not a plain absolute path",
            "letters, digits and . _ + - / only; no '..', no doubled or final '/'",
        )
        return None
    if any(part.startswith("-") for part in where.parts):
        document.note(
            "SAN-CONF-016",
            (*path, "path"),
            f"{text!r} has a part that begins with '-'",
            "programs would take it for an option",
        )
        return None
    volatile = next((top for top in _NOT_ON_A_DISK if where.is_relative_to(top)), None)
    if volatile is not None:
        document.note(
            "SAN-CONF-016",
            (*path, "path"),
            f"{text!r} is below {volatile}, which no boot outlives",
            "a directory on a mounted filesystem, such as /srv/sanctl/main",
        )
        return None
    return where


def _pool_cache(document: Document, path: tuple[str, ...]) -> PoolCache | None:
    document.table(path, known=("origin", "device", "mode", "filesystem"))
    places = {}
    for key, what in (("origin", "the slow disk"), ("device", "the flash before it")):
        text = document.text((*path, key), code="SAN-CONF-048", hint=what)
        if text is None:
            continue
        if not _DEVICE.fullmatch(text) or ".." in PurePosixPath(text).parts:
            document.note(
                "SAN-CONF-048",
                (*path, key),
                f"{text!r} is not a plain path below /dev",
                "one that is the same after a boot, such as /dev/disk/by-id/... has",
            )
            continue
        places[key] = PurePosixPath(text)
    mode = CacheMode.WRITE_THROUGH
    if document.has((*path, "mode")):
        word = document.text((*path, "mode"))
        if word is not None and word not in set(CacheMode):
            document.note_unknown(
                "SAN-CONF-048", (*path, "mode"), f"{word!r} is no mode", ", ".join(CacheMode)
            )
        elif word is not None:
            mode = CacheMode(word)
    filesystem = PoolFilesystem.XFS
    if document.has((*path, "filesystem")):
        word = document.text((*path, "filesystem"))
        if word is not None and word not in set(PoolFilesystem):
            document.note_unknown(
                "SAN-CONF-048",
                (*path, "filesystem"),
                f"{word!r} is none that sanctl makes",
                ", ".join(PoolFilesystem),
            )
        elif word is not None:
            filesystem = PoolFilesystem(word)
    if len(places) < 2:
        return None
    if places["origin"] == places["device"]:
        document.note("SAN-CONF-048", (*path, "device"), "is the slow disk itself")
    return PoolCache(
        origin=places["origin"], flash=places["device"], mode=mode, filesystem=filesystem
    )


def _pool_nodes(
    document: Document, path: tuple[str, ...], known: Sequence[str], taken: Claims
) -> tuple[NodeName, ...]:
    names = document.texts(path)
    if names == ():
        document.note("SAN-CONF-018", path, "names no node")
    for index, name in enumerate(names or ()):
        if name not in known:
            document.note(
                "SAN-CONF-018", path, f"{name!r} is not a node", f"known: {', '.join(known)}"
            )
        elif taken.roles.get(name) is NodeRole.WITNESS:
            document.note("SAN-CONF-018", path, f"{name} is a witness and holds no data")
        elif name in (names or ())[:index]:
            document.note("SAN-CONF-018", path, f"{name} is named twice")
    if document.problems:
        return ()
    return tuple(sorted(NodeName.parse(name) for name in names or ()))


def check_pools(document: Document, pools: Sequence[Pool]) -> None:
    """Add the problems of pools that have the same UUID, path or devices, or contain each other."""
    for one, other in combinations(pools, 2):
        path = ("pools", str(other.name))
        if one.uuid == other.uuid:
            document.note("SAN-CONF-017", (*path, "uuid"), f"is also that of pool {one.name}")
        shared = set(one.nodes) & set(other.nodes)
        if shared and (one.path.is_relative_to(other.path) or other.path.is_relative_to(one.path)):
            document.note(
                "SAN-CONF-021", (*path, "path"), f"{other.path} and {one.path} ({one.name}) overlap"
            )
        both = {
            device
            for pool in (one, other)
            if pool.cache is not None
            for device in (pool.cache.origin, pool.cache.flash)
        }
        if shared and one.cache is not None and other.cache is not None and len(both) < 4:
            document.note(
                "SAN-CONF-048", (*path, "cache"), f"shares a device with that of {one.name}"
            )
