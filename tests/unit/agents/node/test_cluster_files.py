# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes publish by what others see whether their files are the same, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.node import published_fields
from sanctl.drivers import cluster_files
from sanctl.parse.published_state import parse_pool_usage
from tests.fakes.node import FakeNode

DIGESTS = (cluster_files.topology_digest, cluster_files.secret_digest)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cluster_files, "_TOPOLOGY", f"{tmp_path}/cluster.toml")
    monkeypatch.setattr(cluster_files, "_SECRET", f"{tmp_path}/drbd.secret")
    return tmp_path


def test_a_comment_makes_no_other_cluster_toml(folder: Path) -> None:
    assert cluster_files.topology_digest() == ""
    file = folder / "cluster.toml"
    file.write_text("# Written by Ansible.\nschema = 1\n")
    first = cluster_files.topology_digest()
    file.write_text("\n schema = 1\n\n# by hand\n")
    assert cluster_files.topology_digest() == first and len(first) == 8
    file.write_text("schema = 2\n")
    assert cluster_files.topology_digest() != first


def test_the_digest_of_a_secret_says_little_of_it(folder: Path) -> None:
    assert cluster_files.secret_digest() == ""
    file = folder / "drbd.secret"
    file.write_text("s3cret\n")
    first = cluster_files.secret_digest()
    assert len(first) == 4
    file.write_text("s3cret")
    assert cluster_files.secret_digest() == first
    file.write_text("another")
    assert cluster_files.secret_digest() != first


def test_the_pool_agent_publishes_them(
    folder: Path, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, digest in zip(("topology_digest", "secret_digest"), DIGESTS, strict=True):
        monkeypatch.setattr(cluster_files, name, digest)
    assert "toml=" not in published_fields.of_node(fake_node)
    (folder / "cluster.toml").write_text("schema = 1\n")
    (folder / "drbd.secret").write_text("s3cret\n")
    usage = parse_pool_usage(f"total=1 free=1{published_fields.of_node(fake_node)}")
    assert usage.topology_digest == cluster_files.topology_digest() != ""
    assert usage.secret_digest == cluster_files.secret_digest() != ""
