# SPDX-License-Identifier: GPL-2.0-or-later
"""Whom a second site's server lets in, and what it runs: what is not listed is refused."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from sanctl.drivers.site_link import SiteLink, receiver_script, receiver_source
from sanctl.errors import CommandError
from sanctl.rollout.site_access import (
    RECEIVERS,
    authorized_keys,
    receiver_digest,
    receivers,
    site_changes,
)

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "ansible/roles/sanctl_second_site"
PROGRAM = ROLE / "files/site_receive.py"
CLUSTER, NODES = "iqn.2026-11.net.example:san1", ["n1", "n2"]
ONE, TWO, OTHER = (f"ssh-ed25519 AAAAC3Nza{each * 20}" for each in "xyz")
SCRIPT = receiver_script(receiver_source())
DIGEST = hashlib.sha256(SCRIPT).hexdigest()


def keys(present: str, **of_nodes: str) -> list[str]:
    text = authorized_keys(present, CLUSTER, of_nodes, NODES, "/run/it list")
    assert authorized_keys(text, CLUSTER, of_nodes, NODES, "/run/it list") == text
    return text.splitlines()


def line(key: str, node: str, cluster: str = CLUSTER) -> str:
    return f'restrict,command="/run/it list" {key} sanctl {cluster} {node}'


def test_each_node_runs_one_command_alone() -> None:
    assert keys("", n2=f"{TWO} sanctl n2", n1=ONE) == [line(ONE, "n1"), line(TWO, "n2")]


def test_a_node_that_could_not_be_asked_keeps_its_key() -> None:
    before = f"{line(ONE, 'n1')}\n{line(TWO, 'n2')}\n"
    assert keys(before, n1=OTHER) == [line(OTHER, "n1"), line(TWO, "n2")]
    assert keys(before, n1="", n2="No such file") == before.splitlines()


def test_a_node_that_is_no_more_is_let_in_no_more() -> None:
    assert keys(f"{line(ONE, 'n1')}\n{line(TWO, 'n9')}\n", n1=ONE) == [line(ONE, "n1")]


def test_what_others_have_put_there_stays() -> None:
    before = [
        "# ours",
        "",
        f'from="192.0.2.1" {OTHER} me@there',
        line(TWO, "n1", "iqn.2026-11.net.example:san2"),
    ]
    assert keys("\n".join(before), n1=ONE) == [*before, line(ONE, "n1")]


def test_no_other_line_lets_a_node_do_more() -> None:
    """sshd takes the first line with a key: the one that was made by hand had no command."""
    before = f'{ONE} root@n1\nenvironment="A=b c" {ONE}\n#{ONE}\n'
    assert keys(before, n1=ONE) == [f"#{ONE}", line(ONE, "n1")]


def test_an_older_command_is_replaced() -> None:
    assert keys(f'command="old" {ONE} sanctl {CLUSTER} n1') == [line(ONE, "n1")]


def test_the_list_has_the_newest_last_and_forgets_the_oldest() -> None:
    text = receivers("", "0" * 64)
    assert text.splitlines()[1:] == ["0" * 64] and receivers(text, "0" * 64) == text
    for number in range(RECEIVERS + 3):
        text = receivers(text, f"{number:064}")
    listed = text.splitlines()[1:]
    assert len(listed) == RECEIVERS and listed[-1] == f"{RECEIVERS + 2:064}"
    assert receivers("what is no digest\n" + "f" * 63, "1" * 64).splitlines()[1:] == ["1" * 64]


def test_the_receiver_of_a_wheel_is_that_of_its_nodes(tmp_path: Path) -> None:
    wheel, _ = load(ROOT / "ansible/roles/sanctl_preflight/files/build_wheel.py").build(
        ROOT, tmp_path
    )
    assert receiver_digest(str(wheel)) == DIGEST


def test_a_wheel_without_a_receiver_is_an_error(tmp_path: Path) -> None:
    wheel = tmp_path / "sanctl-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sanctl/__init__.py", "")
        archive.writestr("sanctl/drivers/__init__.py", "")
    with pytest.raises(ValueError, match="no receiver"):
        receiver_digest(str(wheel))


def test_sites_are_added_followed_and_left_alone() -> None:
    there = {"name": "far", "address": "u@far:22", "path": "/a"}
    site = {**there, "host": "far1", "user": "u"}
    listed = json.dumps({"data": [there, {**there, "name": "theirs"}]})
    assert site_changes(listed, [site]) == []
    words = ["site", "add", "new", "--ssh", "u@far:22", "--path", "/a"]
    assert site_changes(listed, [{**site, "name": "new"}]) == [{"host": "far1", "command": words}]
    words = ["site", "set", "far", "--ssh", "u@far:22", "--path", "/b"]
    assert site_changes(listed, [{**site, "path": "/b"}]) == [{"host": "far1", "command": words}]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem + "_under_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site(tmp_path: Path, text: str | None) -> SiteLink:
    """Return a connection to a server whose sshd runs the program instead of what is asked for."""
    listed = tmp_path / "receivers"
    if text is not None:
        listed.write_text(text)
    sshd = f'SSH_ORIGINAL_COMMAND=$0 exec {sys.executable} -I {PROGRAM} "{listed}"'
    return SiteLink(["sh", "-c", sshd], "far", SCRIPT)


def test_a_receiver_of_the_list_is_run(tmp_path: Path) -> None:
    with site(tmp_path, receivers("", DIGEST)) as link:
        link.hello()
        with pytest.raises(CommandError, match="SAN-SITE-006"):
            link.survey(str(tmp_path / "none"), "1" * 32)


@pytest.mark.parametrize("text", [None, "", receivers("", "0" * 64)])
def test_another_one_is_not(tmp_path: Path, text: str | None) -> None:
    with (
        pytest.raises(CommandError, match=r"SAN-SITE-034.*receivers"),
        site(tmp_path, text) as link,
    ):
        link.hello()


@pytest.mark.parametrize(
    "command",
    [
        None,
        "",
        "sh",
        "python3 -c 'print(1)'",
        "touch DONE; python3 -c 'import os,zlib\nwhile len(d)<9:\n'",
        "python3 -c 'import os,zlib\nwhile len(d)<9999999:\n'",
        "/usr/lib/openssh/sftp-server",
    ],
)
def test_no_other_command_is_run(tmp_path: Path, command: str | None) -> None:
    done = subprocess.run(
        [sys.executable, "-I", PROGRAM, tmp_path / "receivers"],
        env={} if command is None else {"SSH_ORIGINAL_COMMAND": command},
        cwd=tmp_path, input=b"", capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and b"SAN-SITE-034" in done.stdout
    assert not [*tmp_path.iterdir()]


def test_what_cannot_be_unpacked_is_not_run() -> None:
    program = load(PROGRAM)
    with pytest.raises(program.Refusal, match="no receiver"):
        program.unpacked(b"x" * 9)


def test_the_private_key_leaves_no_node() -> None:
    """No task of the role reads or carries it; what is read is derived from it there."""
    tasks = "".join(path.read_text() for path in sorted(ROLE.glob("tasks/*.yml")))
    assert "ssh-keygen, -y" in tasks
    assert "sanctl.san.contents" in tasks and "slurp" not in tasks
    read = [part.split("]")[0] for part in tasks.split("paths: [")[1:]]
    assert len(read) == 2 and not any("sanctl_second_site_key" in each for each in read)


def test_what_may_be_a_users_link_is_not_read_as_root() -> None:
    """Its home is the site's user's own at a site that was made by hand."""
    text = (ROLE / "tasks/admit.yml").read_text()
    assert text.count("sanctl.san.login_keys:") == 2 and 'authorized_keys"' not in text
