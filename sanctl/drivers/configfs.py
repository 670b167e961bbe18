# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's configfs: folders listed, attributes written, links made and removed."""

from __future__ import annotations

import contextlib
import os

from sanctl.errors import CommandError, Problem
from sanctl.system.files import is_folder, is_link, read_text


def write(path: str, value: str) -> None:
    """Write an attribute in one call, without a newline: some attributes take it for data.

    Raises:
        CommandError: the kernel refused the value.
        OSError: there is no such attribute.
    """
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, value.encode())
    except OSError as error:
        raise CommandError(
            Problem("SAN-LIO-001", f"the kernel refused {value!r} for {path}: {error.strerror}")
        ) from error
    finally:
        os.close(handle)


def set_value(path: str, value: str) -> None:
    """Write an attribute unless it already has the value.

    Raises:
        CommandError: the kernel refused the value.
        OSError: there is no such attribute.
    """
    if read_text(path).strip() != value:
        write(path, value)


def link(target: str, path: str) -> None:
    """Make a link unless it is there."""
    with contextlib.suppress(FileExistsError):
        os.symlink(target, path)


def entries(path: str) -> list[str]:
    """Return the names in a folder, sorted; none where there is no such folder."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def folders(path: str) -> list[str]:
    """Return the names of the folders in a folder, sorted."""
    return [entry for entry in entries(path) if is_folder(f"{path}/{entry}")]


def remove_links(folder: str) -> None:
    """Remove every link in a folder."""
    for entry in entries(folder):
        if is_link(f"{folder}/{entry}"):
            os.unlink(f"{folder}/{entry}")
