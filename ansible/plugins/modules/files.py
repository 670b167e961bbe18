#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Ansible module: writes several whole files or links in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: files
short_description: Puts several whole files in place in one go
description:
  - Gives each file its exact content, mode and owner, replacing it atomically if anything differs.
  - One module run for a dozen small files, where C(ansible.builtin.copy) takes two or three round
    trips for each.
options:
  files:
    description: The files.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path. Missing folders above it are made with mode 0755.
        type: path
        required: true
      content:
        description: The whole content.
        type: str
      content_b64:
        description: The whole content in base64, for what is not text.
        type: str
      link:
        description: Make it a symbolic link to this instead of a file.
        type: str
      mode:
        description: Permissions in octal.
        type: str
        default: "0644"
attributes:
  check_mode:
    support: full
    description: Reports what would change.
  diff_mode:
    support: full
    description: Shows text that would change, except under C(no_log).
author:
  - The sanctl authors (@sanctl)
"""

EXAMPLES = r"""
- name: Two files
  sanctl.san.files:
    files:
      - path: /etc/modules-load.d/sanctl.conf
        content: "drbd\n"
      - path: /etc/sanctl/drbd.secret
        content: "{{ secret }}\n"
        mode: "0600"
"""

RETURN = r"""
changed_paths:
  description: The files that were written, or would be.
  type: list
  elements: str
  returned: always
"""

import base64
import contextlib
import os
import stat

from ansible.module_utils.basic import AnsibleModule


def current(path: str) -> tuple[bytes, int, int] | None:
    """Return content, mode and owner of a regular file; None for anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        # For example a symbolic link: it is replaced, not followed.
        return None
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return None
        return file.read(), stat.S_IMODE(info.st_mode), info.st_uid


def link_of(path: str) -> str | None:
    """Return where a symbolic link leads; None where there is none, and one is put."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def put(path: str, content: bytes, mode: int, link: str | None) -> None:
    """Replace a file atomically; a secret is never readable by others, not even for a moment."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    temporary = f"{path}.sanctl-new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    if link is not None:
        os.symlink(link, temporary)
    else:
        fill(temporary, content, mode)
    os.rename(temporary, path)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fill(temporary: str, content: bytes, mode: int) -> None:
    """Write a new file, its mode set before anybody could open it."""
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        os.fchown(handle, 0, 0)
        os.fchmod(handle, mode)
        file.flush()
        os.fsync(handle)


def text(content: bytes) -> str:
    """Return content as far as a diff can show it."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "(binary)\n"


def main() -> None:
    """Compare, write what differs, report."""
    # Of a server with a strict one: folders that are made here have to be read by other users.
    os.umask(0o022)
    file_spec = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str"},
        "content_b64": {"type": "str"},
        "link": {"type": "str"},
        "mode": {"type": "str", "default": "0644"},
    }
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": file_spec,
                "required_one_of": [("content", "content_b64", "link")],
                "mutually_exclusive": [("content", "content_b64", "link")],
            }
        },
        # The node's journal is not the place for whole files. What the controller shows is up to
        # the task.
        no_log=True,
        supports_check_mode=True,
    )
    changed: list[str] = []
    diff: list[dict[str, str]] = []
    for file in module.params["files"]:
        path, link = file["path"], file["link"]
        if link is not None:
            wanted = b""
        elif file["content_b64"] is not None:
            wanted = base64.b64decode(file["content_b64"], validate=True)
        else:
            wanted = file["content"].encode()
        mode = int(file["mode"], 8)
        before = current(path)
        if link is None and before == (wanted, mode, 0):
            continue
        if link is not None and link_of(path) == link:
            continue
        changed.append(path)
        old = before[0] if before else b""
        if not mode & 0o077:
            diff.append({"before_header": path, "after_header": path, "prepared": f"{path}\n"})
        else:
            diff.append(
                {
                    "before_header": path,
                    "after_header": path,
                    "before": text(old),
                    "after": f"link to {link}\n" if link else text(wanted),
                }
            )
        if not module.check_mode:
            try:
                put(path, wanted, mode, link)
            except OSError as error:
                module.fail_json(msg=f"{path}: {error.strerror}", changed_paths=changed)
    module.exit_json(changed=bool(changed), changed_paths=changed, diff=diff)


if __name__ == "__main__":
    main()
