# SPDX-License-Identifier: GPL-2.0-or-later
"""What the rollout writes into corosync.conf: how the cluster counts now, or is to when new."""

from __future__ import annotations

import base64
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from sanctl.model.vote_mode import VoteMode
from sanctl.render.corosync import quorum_section

_PATH = Path(__file__).resolve().parents[3] / "ansible" / "plugins" / "filter" / "inventory.py"


def quorum(contents: list[str], target: str) -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("inventory_filter", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    encoded = [base64.b64encode(text.encode()).decode() for text in contents]
    found: dict[str, str] = module.quorum(encoded, "lab", target)
    return found


def conf(tally: str, cluster: str = "lab") -> str:
    parsed = VoteMode.parse(tally)
    assert parsed is not None
    return f"totem {{\n    cluster_name: {cluster}\n}}\n{quorum_section(parsed)}"


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (["", ""], "qdevice@10.0.0.9"),
        (["", conf("two-node")], "two-node"),
        ([conf("nodes"), conf("two-node")], "nodes"),
        # The package's own file, and another cluster's, say nothing.
        ([conf("two-node", "debian"), ""], "qdevice@10.0.0.9"),
    ],
)
def test_a_running_cluster_goes_on_as_it_counts(contents: list[str], expected: str) -> None:
    found = quorum(contents, "qdevice@10.0.0.9")
    assert found["tally"] == expected
    assert found["section"].startswith("quorum {")


def test_rules_of_somebody_else_are_not_overwritten() -> None:
    strange = conf("nodes").replace("corosync_votequorum", "something_else")
    with pytest.raises(Exception, match="does not know"):
        quorum([strange], "nodes")
