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
from typing import Any

import pytest

from sanctl.drivers.site_link import SiteLink, receiver_script, receiver_source
from sanctl.errors import CommandError
from sanctl.rollout.site_access import (
    RECEIVERS,
    authorized_keys,
    digest_command,
    receiver_digest,
    receivers,
    sent_receivers,
    site_changes,
    unrestricted,
)

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "ansible/roles/sanctl_second_site"
PROGRAM = ROLE / "files/site_receive.py"
CLUSTER, NODES = "san1 iqn.2026-11.net.example:san1", ["n1", "n2"]
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
        line(TWO, "n1", "san2 iqn.2026-11.net.example:san1"),
        line(TWO, "n9", "san2 iqn.2026-11.net.example:san1"),
    ]
    assert keys("\n".join(before), n1=ONE) == [*before, line(ONE, "n1")]


def test_the_role_tells_clusters_of_one_prefix_by_their_names() -> None:
    assert "sanctl_cluster_name" in (ROLE / "vars/main.yml").read_text()


def test_no_other_line_lets_a_node_do_more() -> None:
    """sshd takes the first line with a key: the one that was made by hand had no command."""
    before = f'{ONE} root@n1\nenvironment="A=b c" {ONE}\n#{ONE}\n'
    assert keys(before, n1=ONE) == [f"#{ONE}", line(ONE, "n1")]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ('from="192.0.2.0/24,!192.0.2.9" ', 'from="192.0.2.0/24,!192.0.2.9",'),
        (
            'no-pty,FROM="a",environment="X=\\"from=1, b",expiry-time="20991231" ',
            'FROM="a",expiry-time="20991231",',
        ),
        ('environment="from=1" ', ""),
        ("", ""),
    ],
)
def test_from_where_and_how_long_a_key_is_let_in_stays(options: str, kept: str) -> None:
    found = keys(f"{options}{ONE} root@n1", n1=ONE)
    assert found == [kept + line(ONE, "n1")]
    # Also where the node has another key by now, or could not be asked.
    assert keys("\n".join(found), n1=OTHER) == [kept + line(OTHER, "n1")]
    assert keys("\n".join(found)) == found


def test_of_several_lines_the_widest_counts() -> None:
    both = f'from="a" {ONE}\nfrom="b" {ONE}\n'
    assert keys(both, n1=ONE) == [f'from="{each}",' + line(ONE, "n1") for each in "ab"]
    assert keys(f"{both}{ONE}", n1=ONE) == [line(ONE, "n1")]


def test_no_key_is_restricted_before_what_all_nodes_send_is_listed() -> None:
    """One key by hand for all nodes: the node that is down would be locked out."""
    before = f"{ONE} root@n1\n"
    text = authorized_keys(before, CLUSTER, {"n1": ONE}, NODES, "/run/it list", unlisted=["n2"])
    assert text == before
    assert unrestricted(text, CLUSTER, NODES) == NODES
    found = keys(text, n1=ONE, n2=ONE)
    assert found == [line(ONE, "n1"), line(ONE, "n2")]
    # From then on no node says what its own key may run.
    assert unrestricted("\n".join(found), CLUSTER, [*NODES, "n3"]) == ["n3"]
    assert unrestricted(f"{ONE} sanctl {CLUSTER} n1", CLUSTER, NODES) == NODES


def test_a_node_without_a_line_by_hand_waits_for_no_other() -> None:
    before = f"{OTHER} me@there\n{line(TWO, 'n2')}\n"
    text = authorized_keys(before, CLUSTER, {"n1": ONE}, NODES, "/run/it list", unlisted=["n1"])
    assert text.splitlines() == [f"{OTHER} me@there", line(ONE, "n1"), line(TWO, "n2")]


def test_what_nodes_send_is_listed_before_that_of_the_wheel() -> None:
    def said(node: str, release: str, text: str | None) -> dict[str, Any]:
        found = {"sanctl_second_site_release": [node, release]}
        return found if text is None else {**found, "stdout": text}

    old, now = "a" * 64, "b" * 64
    results = [
        said("n1", "previous", f"{old}\n"),
        said("n1", "current", now),
        said("n2", "previous", old),
        said("n2", "current", "Traceback"),
        said("n3", "previous", None),
        said("n3", "current", None),
        said("n4", "previous", ""),
        said("n4", "current", old),
    ]
    sent = sent_receivers(results)
    assert sent["unlisted"] == ["n2", "n3"]
    assert sent["digests"] == [old, old, now, old]
    assert receivers("", [*sent["digests"], now]).splitlines()[1:] == [old, now]
    assert sent_receivers([]) == {"digests": [], "unlisted": []}


def test_a_node_says_what_its_release_sends(tmp_path: Path) -> None:
    def ask(folder: Path) -> str:
        return subprocess.run(
            digest_command(sys.executable, str(folder)),
            capture_output=True, text=True, timeout=60, check=False, cwd="/",
        ).stdout.strip()  # fmt: skip

    assert ask(ROOT) == DIGEST
    # As the first releases did it.
    (tmp_path / "sanctl/drivers").mkdir(parents=True)
    link = "def receiver_script(): return b'first'"
    (tmp_path / "sanctl/drivers/site_link.py").write_text(link)
    assert ask(tmp_path) == hashlib.sha256(b"first").hexdigest()
    (tmp_path / "sanctl/drivers/site_link.py").unlink()
    assert ask(tmp_path) == ""


def test_an_older_command_is_replaced() -> None:
    assert keys(f'command="old" {ONE} sanctl {CLUSTER} n1') == [line(ONE, "n1")]


def test_the_list_has_the_newest_last_and_forgets_the_oldest() -> None:
    text = receivers("", ["0" * 64])
    assert text.splitlines()[1:] == ["0" * 64] and receivers(text, ["0" * 64]) == text
    for number in range(RECEIVERS + 3):
        text = receivers(text, [f"{number:064}"])
    listed = text.splitlines()[1:]
    assert len(listed) == RECEIVERS and listed[-1] == f"{RECEIVERS + 2:064}"
    assert receivers("what is no digest\n" + "f" * 63, ["1" * 64]).splitlines()[1:] == ["1" * 64]


def test_a_receiver_that_is_rolled_out_again_falls_out_last() -> None:
    used = "f" * 64
    text = receivers("", [used])
    for number in range(RECEIVERS):
        text = receivers(receivers(text, [f"{number:064}"]), [used])
    assert text.splitlines()[-1] == used and receivers(text, [used]) == text


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
    with site(tmp_path, receivers("", [DIGEST])) as link:
        link.hello()
        with pytest.raises(CommandError, match="SAN-SITE-006"):
            link.survey(str(tmp_path / "none"), "1" * 32)


@pytest.mark.parametrize("text", [None, "", receivers("", ["0" * 64])])
def test_another_one_is_not(tmp_path: Path, text: str | None) -> None:
    """Said is what would have to be listed: a way back may lead to a release that is not."""
    said = "cannot be read" if text is None else DIGEST
    with (
        pytest.raises(
            CommandError, match=rf"SAN-SITE-034.*receivers.*{said}|SAN-SITE-034.*{said}.*receivers"
        ),
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
