# SPDX-License-Identifier: GPL-2.0-or-later
"""cluster.toml, as the agents read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents import cluster_toml
from sanctl.config import parse
from sanctl.system import journal
from tests.unit.config.test_cluster import GOOD


def test_a_cluster_toml_of_a_newer_release_is_read_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(journal, "write", lambda text, **_: logged.append(text))
    monkeypatch.setattr(cluster_toml, "PATH", str(tmp_path / "cluster.toml"))
    (tmp_path / "run-sanctl").mkdir()
    Path(cluster_toml.PATH).write_text(GOOD.replace("id = 2", "id = 2\nnvme = 1"))
    assert [cluster_toml.load_topology() for _ in range(3)] == [parse(GOOD)] * 3
    assert len(logged) == 1 and "SAN-CONF-004" in logged[0] and "nvme" in logged[0]
    Path(cluster_toml.PATH).write_text(GOOD)
    cluster_toml.load_topology()
    assert len(logged) == 1
