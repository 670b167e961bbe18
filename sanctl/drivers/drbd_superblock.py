# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the flags of a replica's DRBD metadata from its file, before the replica is attached.

`drbdsetup get-gi` takes an attached replica, and DRBD writes the flags anew with that; `drbdmeta`
is a program more in each start. The layouts are those of DRBD 8.4 (drbd_main.c, `struct
meta_data_on_disk`) and 9 (drbd_meta_data.h, `struct meta_data_on_disk_9`), big-endian, at the
beginning of metadata that is external and flexible.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sanctl.system.files import read_bytes

# 8.4: la_size_sect, uuid[4], device_uuid, reserved_u64_1; 9: effective_size, current_uuid, members,
# reserved_u64[3], device_uuid. Of both then: flags, magic.
_LAYOUT = struct.Struct(">7QII")
#: DRBD_MD_MAGIC_08 and DRBD_MD_MAGIC_84_UNCLEAN; DRBD_MD_MAGIC_09.
_MAGICS_84, _MAGIC_9 = frozenset({0x8374026B, 0x8374026C}), 0x8374026D
# In 9, `peers` after twelve words more, for each: bitmap_uuid, bitmap_dagtag, flags, bitmap_index,
# two words. Slots without an index are no peer's, and hold the first generation of the data.
_PEERS_AT = _LAYOUT.size + 12 * 4
_PEER = struct.Struct(">QQIi2I")
_PEERS_MAX = 32
_READ_BYTES = _PEERS_AT + _PEERS_MAX * _PEER.size
_CONSISTENT, _WAS_UP_TO_DATE = 1 << 0, 1 << 4
# 9 has the second one while it is Primary, and the first one while any replica is.
_PRIMARY_IND, _CRASHED_PRIMARY = 1 << 1, 1 << 6


class Superblock(NamedTuple):
    """What a replica's metadata says of how it went down.

    Attributes:
        was_primary: it was UpToDate and Primary when it went down, or when it went down before and
            DRBD has not noted anything since. (8.4 says Primary of a standby, too, beside a Primary
            without a disk.)
        is_ahead: a bitmap counts from a generation: it went on without a peer, or was filling it.
    """

    was_primary: bool
    is_ahead: bool


def parse(text: bytes) -> Superblock | None:
    """Return what the beginning of DRBD's metadata says; None where it is none of a known form."""
    if len(text) < _READ_BYTES:
        return None
    *words, flags, magic = _LAYOUT.unpack_from(text)
    if magic in _MAGICS_84:
        bitmaps, was = [words[2]], _PRIMARY_IND | _CRASHED_PRIMARY
    elif magic == _MAGIC_9:
        peers = text[_PEERS_AT:_READ_BYTES]
        bitmaps = [bitmap for bitmap, _, _, index, *_ in _PEER.iter_unpack(peers) if index >= 0]
        was = _CRASHED_PRIMARY
    else:
        return None
    is_good = flags & _CONSISTENT and flags & _WAS_UP_TO_DATE
    return Superblock(bool(is_good and flags & was), any(bitmaps))


def read(path: str) -> Superblock | None:
    """Return what a replica's metadata file says; None where it is none of a known form.

    Raises:
        OSError: it cannot be read.
    """
    return parse(read_bytes(path, _READ_BYTES))
