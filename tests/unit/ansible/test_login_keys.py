# SPDX-License-Identifier: GPL-2.0-or-later
"""The module `login_keys`: in a home that is not root's root reads and writes nothing."""

from __future__ import annotations

import importlib.util
import os
import pwd
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).resolve().parents[3] / "ansible/plugins/modules/login_keys.py"
KEYS = b"ssh-ed25519 AAAA me@there\n"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("login_keys_under_test", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


login_keys = load()


def keep(home: Path, wanted: bytes | None, *, is_check: bool = False) -> tuple[bool, bytes]:
    found: tuple[bool, bytes] = login_keys.keep(str(home), wanted, is_check=is_check)
    return found


def test_a_file_is_read_made_and_replaced(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "home/.ssh/authorized_keys"
    assert keep(home, None) == (False, b"") and keep(home, KEYS, is_check=True) == (True, b"")
    assert not home.exists()
    assert keep(home, KEYS) == (True, b"") and file.read_bytes() == KEYS
    assert keep(home, KEYS) == (False, KEYS) and keep(home, None) == (False, KEYS)
    assert keep(home, b"other\n", is_check=True) == (True, KEYS) and file.read_bytes() == KEYS
    assert keep(home, b"other\n") == (True, KEYS) and file.read_bytes() == b"other\n"
    mode = 0o644 if os.geteuid() == 0 else 0o600
    assert file.stat().st_mode & 0o777 == mode
    file.chmod(0o666)
    assert keep(home, b"other\n") == (True, b"other\n") and file.stat().st_mode & 0o777 == mode
    assert [each.name for each in file.parent.iterdir()] == ["authorized_keys"]


@pytest.mark.parametrize("place", ["home", "home/.ssh", "home/.ssh/authorized_keys"])
def test_no_link_is_followed(tmp_path: Path, place: str) -> None:
    secret = tmp_path / "secret"
    keep(tmp_path / "home", KEYS)
    (tmp_path / place).rename(secret)
    (tmp_path / place).symlink_to(secret)
    for wanted in (None, b"x"):
        with pytest.raises(login_keys.Refusal, match="is a link"):
            keep(tmp_path / "home", wanted)
    found = secret if secret.is_file() else next(secret.rglob("authorized_keys"))
    assert found.read_bytes() == KEYS


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    keep(tmp_path, KEYS)
    file = tmp_path / ".ssh/authorized_keys"
    file.unlink()
    file.mkdir() if kind == "folder" else os.mkfifo(file)
    with pytest.raises(login_keys.Refusal, match="no regular file"):
        keep(tmp_path, b"x")


def test_a_second_file_of_keys_is_refused(tmp_path: Path) -> None:
    keep(tmp_path, KEYS)
    (tmp_path / ".ssh/authorized_keys2").symlink_to("/nowhere")
    with pytest.raises(login_keys.Refusal, match="authorized_keys2 may let keys in"):
        keep(tmp_path, b"x")
    assert (tmp_path / ".ssh/authorized_keys").read_bytes() == KEYS


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up rights")
def test_root_refuses_what_others_may_write(tmp_path: Path) -> None:
    keep(tmp_path, KEYS)
    (tmp_path / ".ssh").chmod(0o775)
    with pytest.raises(login_keys.Refusal, match="others may write"):
        keep(tmp_path, b"x")
    os.chown(tmp_path / ".ssh", pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(login_keys.Refusal, match="belongs to uid"):
        keep(tmp_path, b"x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up rights")
def test_in_a_home_of_their_own_the_user_works(tmp_path: Path) -> None:
    name, uid, gid = "nobody", pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("nobody").pw_gid
    for folder in [tmp_path, *tmp_path.parents[:-2]]:
        folder.chmod(folder.stat().st_mode | 0o055)
    home, secret = tmp_path / "home", tmp_path / "secret"
    home.mkdir()
    secret.write_bytes(b"root alone reads it")
    secret.chmod(0o600)
    entry = pwd.struct_passwd((name, "x", uid, gid, "", str(home), "/bin/sh"))
    before = os.getresuid(), os.getresgid(), os.getgroups()
    with login_keys.owner_of_home(entry):
        assert os.geteuid() == 0
        keep(home, KEYS)
    file = home / ".ssh/authorized_keys"
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (0, 0o644)
    # What root has put there in a home of the user's is not the user's.
    os.chown(home, uid, gid)
    with login_keys.owner_of_home(entry), pytest.raises(login_keys.Refusal, match="belongs to"):
        keep(home, b"x")
    file.unlink()
    file.parent.rmdir()
    with login_keys.owner_of_home(entry):
        assert (os.geteuid(), os.getegid(), os.getgroups()) == (uid, gid, [])
        keep(home, KEYS)
        with pytest.raises(PermissionError):
            secret.read_bytes()
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (uid, 0o600)
    assert file.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(OSError, match="x"), login_keys.owner_of_home(entry):
        raise OSError("x")
    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before
