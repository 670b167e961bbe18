#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Ansible module: tells which release is current, and removes those that nobody needs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: releases
short_description: Tells which release of sanctl is current, and removes old ones
description:
  - Keeps the release that is wanted, the one that is current (the way back), and the one before it
    if the current one is the wanted one. Removes all others, except those that a process was
    started from.
  - A process of sanctl keeps the folder of its release open for as long as it lives.
options:
  wanted:
    description: The folder name of the release that this run makes the current one.
    type: str
    required: true
  root:
    description: The folder that holds the releases.
    type: path
    default: /opt/sanctl
attributes:
  check_mode:
    support: full
    description: Tells what it would remove.
  diff_mode:
    support: none
    description: What is removed is in RV(removed).
author:
  - The sanctl authors (@sanctl)
"""

EXAMPLES = r"""
- name: Look at the releases
  sanctl.san.releases:
    wanted: 0.1.0-0123456789ab
"""

RETURN = r"""
current:
  description: The folder name of the release that is current, empty if there is none.
  type: str
  returned: always
removed:
  description: The releases that were removed, or would be.
  type: list
  elements: str
  returned: always
in_use:
  description: The releases that would have been removed if no process had been started from them.
  type: list
  elements: str
  returned: always
"""

import os
import re
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

# As the filter `release` makes them: anything else in the folder is somebody else's.
_RELEASE = re.compile(r"\d[\w.+]*-[0-9a-f]{12}")


def link(root: Path, name: str) -> str:
    """Return where a link of the folder leads, an empty text if there is none."""
    try:
        return os.readlink(root / name)
    except OSError:
        return ""


def unneeded(root: Path, wanted: str) -> list[str]:
    """Return the releases that are neither wanted nor a way back."""
    current = link(root, "current")
    keep = {wanted, current}
    if current == wanted:
        keep.add(link(root, "previous"))
    try:
        found = sorted(
            entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)
        )
    except FileNotFoundError:
        return []
    return [name for name in found if _RELEASE.fullmatch(name) and name not in keep]


def opened(proc: Path) -> set[str]:
    """Return every path that some process has open."""
    paths = set()
    for folder in proc.glob("[0-9]*/fd"):
        try:
            handles = list(os.scandir(folder))
        except OSError:
            continue  # it has ended
        for handle in handles:
            try:
                paths.add(os.readlink(handle.path))
            except OSError:
                continue
    return paths


def main() -> None:
    """Compare, remove, tell."""
    module = AnsibleModule(
        argument_spec={
            "wanted": {"type": "str", "required": True},
            "root": {"type": "path", "default": "/opt/sanctl"},
        },
        supports_check_mode=True,
    )
    root = Path(module.params["root"])
    stale = unneeded(root, module.params["wanted"])
    busy = opened(Path("/proc")) if stale else set()
    in_use = [name for name in stale if str(root / name) in busy]
    removed = [name for name in stale if name not in in_use]
    if not module.check_mode:
        for name in removed:
            try:
                shutil.rmtree(root / name)
            except OSError as error:
                module.fail_json(msg=f"{error.filename}: {error.strerror}", removed=removed)
    module.exit_json(
        changed=bool(removed), current=link(root, "current"), removed=removed, in_use=in_use
    )


if __name__ == "__main__":
    main()
