# SPDX-License-Identifier: GPL-2.0-or-later
"""Extents of a file: which ranges of it are where on the filesystem's disk."""

from __future__ import annotations

from typing import NamedTuple


class Extent(NamedTuple):
    """A range of a file that is written, in bytes.

    Attributes:
        begin: where it begins in the file.
        end: where it ends there.
        physical: where it begins on the disk; None: the filesystem does not say.
        is_shared: another file has the same blocks.
    """

    begin: int
    end: int
    physical: int | None
    is_shared: bool
