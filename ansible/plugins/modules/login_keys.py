#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Ansible module: reads or replaces a user's authorized_keys, with no rights but the user's."""

from __future__ import annotations

DOCUMENTATION = r"""
module: login_keys
short_description: Reads or replaces the authorized_keys of a user
description:
  - In a home that is the user's own it works as the user, who could have put a link there to a
    file that is none of theirs; in one that is root's, as root. It follows no link, and refuses
    a home, a C(.ssh) or a file that is not what it is to be.
  - It refuses an C(authorized_keys2), which lets keys in, too.
options:
  user:
    description: The user. Where there is none nothing is read, and none is made.
    type: str
    required: true
  content_b64:
    description: The whole content in base64; the file is read alone if not given.
    type: str
attributes:
  check_mode:
    support: full
    description: Reports what would change.
  diff_mode:
    support: full
    description: Shows what would change.
author:
  - The sanctl authors (@sanctl)
"""

EXAMPLES = r"""
- name: Read the keys that are let in
  sanctl.san.login_keys:
    user: sanctl-site
  register: present
"""

RETURN = r"""
exists:
  description: Whether there is such a user.
  type: bool
  returned: success
content_b64:
  description: The file as it was, in base64; an empty text where there is none.
  type: str
  returned: success
"""

import base64
import contextlib
import os
import pwd
import stat
from collections.abc import Iterator

from ansible.module_utils.basic import AnsibleModule

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE, _SECOND, _NEW = "authorized_keys", "authorized_keys2", "authorized_keys.sanctl-new"


class Refusal(Exception):
    """What is there is not what it is to be, and how."""


@contextlib.contextmanager
def owner_of_home(entry: pwd.struct_passwd) -> Iterator[None]:
    """Have no rights but those of a user meanwhile, in a home that is not root's."""
    try:
        is_roots = os.lstat(entry.pw_dir).st_uid == 0
    except FileNotFoundError:
        is_roots = True
    if os.geteuid() != 0 or is_roots:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    try:
        yield
    finally:
        # Ansible's own code may be readable by root alone.
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def open_folder(path: str, name: str, above: int | None = None) -> int | None:
    """Open a folder that is this process's user's, and no link; None: it is not there.

    Args:
        path: its path, for messages.
        name: its name in the folder above.
        above: the open folder above; None: the name is its path.
    """
    try:
        handle = os.open(name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refusal(
            f"{path} is a link, or no directory that can be read ({error.strerror})"
        ) from None
    info = os.fstat(handle)
    if info.st_uid != os.geteuid():
        os.close(handle)
        raise Refusal(f"{path} belongs to uid {info.st_uid}, not {os.geteuid()}")
    if os.geteuid() == 0 and info.st_mode & 0o022:
        os.close(handle)
        raise Refusal(f"{path} is root's, and others may write to it: `chmod go-w {path}`")
    return handle


def make_folder(path: str, name: str, above: int | None, mode: int) -> int:
    """Open a folder of this process's user, which is made if it is not there."""
    handle = open_folder(path, name, above)
    if handle is None:
        os.mkdir(name, mode, dir_fd=above)
        handle = open_folder(path, name, above)
    if handle is None:
        raise Refusal(f"{path} has gone")
    return handle


def read(folder: int, path: str) -> tuple[bytes, int, int] | None:
    """Return content, mode and owner of the file; None: it is not there."""
    with contextlib.suppress(FileNotFoundError):
        os.stat(_SECOND, dir_fd=folder, follow_symlinks=False)
        raise Refusal(
            f"{path}/{_SECOND} may let keys in, too, past what is put here: move what is needed"
            f" of it to {_FILE}, and remove it"
        )
    try:
        handle = os.open(_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refusal(
            f"{path}/{_FILE} is a link, or no file that can be read ({error.strerror})"
        ) from None
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        os.close(handle)
        raise Refusal(f"{path}/{_FILE} is no regular file")
    with os.fdopen(handle, "rb") as file:
        return file.read(), stat.S_IMODE(info.st_mode), info.st_uid


def put(folder: int, content: bytes, mode: int) -> None:
    """Replace the file atomically."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_NEW, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(_NEW, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
    os.rename(_NEW, _FILE, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def keep(home: str, wanted: bytes | None, *, is_check: bool) -> tuple[bool, bytes]:
    """Read a home's file, and replace it if it differs; return whether, and what was there.

    Args:
        home: the home.
        wanted: what is to be there; None: whatever is.
        is_check: whether nothing is to be written.
    """
    path = f"{home}/.ssh"
    # sshd reads the file as the user: in root's folders everybody has to be able to.
    folder_mode, mode = (0o755, 0o644) if os.geteuid() == 0 else (0o700, 0o600)
    handles: list[int] = []
    try:
        above = open_folder(home, home)
        if above is not None:
            handles.append(above)
            folder = open_folder(path, ".ssh", above)
            if folder is not None:
                handles.append(folder)
        before = read(handles[1], path) if len(handles) == 2 else None
        present = before[0] if before else b""
        if wanted is None or before == (wanted, mode, os.geteuid()):
            return False, present
        if not is_check:
            if not handles:
                handles.append(make_folder(home, home, None, folder_mode))
            if len(handles) == 1:
                handles.append(make_folder(path, ".ssh", handles[0], folder_mode))
            put(handles[1], wanted, mode)
        return True, present
    finally:
        for handle in handles:
            os.close(handle)


def main() -> None:
    """Read, compare, write what differs, report."""
    # Of a server with a strict one: sshd and the site's user have to read what is made here.
    os.umask(0o022)
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "content_b64": {"type": "str", "no_log": False},
        },
        # The server's journal is not the place for whole files.
        no_log=True,
        supports_check_mode=True,
    )
    try:
        entry = pwd.getpwnam(module.params["user"])
    except KeyError:
        module.exit_json(changed=False, exists=False, content_b64="")
    given = module.params["content_b64"]
    wanted = None if given is None else base64.b64decode(given, validate=True)
    try:
        with owner_of_home(entry):
            changed, present = keep(entry.pw_dir, wanted, is_check=module.check_mode)
    except Refusal as error:
        module.fail_json(msg=f"{error}. Nothing was changed.")
    except OSError as error:
        module.fail_json(msg=f"{entry.pw_dir}/.ssh: {error.strerror}")
    name = f"{entry.pw_dir}/.ssh/{_FILE}"
    shown = [
        {
            "before_header": name,
            "after_header": name,
            "before": present.decode(errors="replace"),
            "after": (wanted or b"").decode(errors="replace"),
        }
    ]
    module.exit_json(
        changed=changed,
        exists=True,
        content_b64=base64.b64encode(present).decode(),
        diff=shown if changed else [],
    )


if __name__ == "__main__":
    main()
