# SPDX-License-Identifier: GPL-2.0-or-later
"""What the rollout writes into corosync.conf: how the cluster counts now, or is to when new."""

from __future__ import annotations

import base64
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment

from sanctl.model.vote_mode import VoteMode
from sanctl.render.corosync import quorum_section

_PATH = Path(__file__).resolve().parents[3] / "ansible" / "plugins" / "filter" / "inventory.py"
_ROLE = _PATH.parents[2] / "roles" / "sanctl_corosync"


_TARGET = "qdevice@10.0.0.9"


def filters() -> Any:
    spec = importlib.util.spec_from_file_location("inventory_filter", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def encoded(contents: list[str]) -> list[str]:
    return [base64.b64encode(text.encode()).decode() for text in contents]


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
    found = encoded(contents)
    assert filters().tally(found, "lab", _TARGET) == expected
    parsed = VoteMode.parse(expected)
    assert parsed is not None
    assert filters().quorum_section(found, "lab", _TARGET, 2) == quorum_section(parsed)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_two_node_is_not_written_for_more_or_fewer_nodes(count: int) -> None:
    """Corosync lets one vote be enough while two are present: two halves of four both go on."""
    found = encoded([conf("two-node"), conf("two-node"), "", ""])
    assert filters().tally(found, "lab", _TARGET) == "two-node"
    with pytest.raises(Exception, match=f"the inventory has {count} nodes"):
        filters().quorum_section(found, "lab", _TARGET, count)
    with pytest.raises(Exception, match="strategy set node-majority"):
        filters().quorum_section([], "lab", "two-node", count)
    # A check run shows what is written once the two have given it up.
    shown = filters().quorum_section(found, "lab", _TARGET, count, True)
    assert "host: 10.0.0.9" in shown
    assert "two_node" not in shown


@pytest.mark.parametrize(
    ("now", "target", "count", "leaves"),
    [
        ("two-node", _TARGET, 4, True),
        ("two-node", "nodes", 3, True),
        (_TARGET, "nodes", 3, True),
        ("two-node", _TARGET, 2, False),
        ("two-node", "two-node", 2, False),
        (_TARGET, _TARGET, 4, False),
        ("nodes", "nodes", 5, False),
    ],
)
def test_the_role_has_the_cluster_give_it_up_first(
    now: str, target: str, count: int, leaves: bool
) -> None:
    yaml: Any = importlib.import_module("yaml")
    tasks = yaml.safe_load((_ROLE / "tasks" / "main.yml").read_text(encoding="utf-8"))
    names = [task.get("ansible.builtin.include_tasks", task["name"]) for task in tasks]
    assert names.index("leave.yml") < names.index("Put configuration and keys in place")
    variables = yaml.safe_load((_ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))
    environment = NativeEnvironment()
    values: dict[str, Any] = {
        "sanctl_preflight_survey": {"tally": target, "nodes": [{}] * count},
        "sanctl_corosync_tally": now,
    }
    assert "sanctl_corosync_leaves | bool" in tasks[names.index("leave.yml")]["when"]
    asked: Any = environment.from_string(variables["sanctl_corosync_asked_to_leave"]).render(
        **values
    )
    assert asked is leaves
    environment.filters["bool"] = bool
    text = variables["sanctl_corosync_leaves"]
    for runs in (True, False):
        values |= {"sanctl_corosync_asked_to_leave": asked, "sanctl_corosync_runs": runs}
        found: Any = environment.from_string(text).render(**values)
        assert found is (leaves and runs)


@pytest.mark.parametrize(
    ("cmaps", "runs"),
    [
        (["", "totem.cluster_name (str) = lab\ntotem.token (u32) = 3000\n"], True),
        (["", ""], False),
        (["totem.cluster_name (str) = lab2\n", ""], False),
        # One whose packages are not installed yet was not asked.
        ([None, None], False),
    ],
)
def test_a_cluster_that_is_stopped_is_not_asked(cmaps: list[str | None], runs: bool) -> None:
    """The run failed there: no Pacemaker answered."""
    yaml: Any = importlib.import_module("yaml")
    variables = yaml.safe_load((_ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))
    hosts = {
        f"n{at}": {} if text is None else {"sanctl_corosync_cmap": {"stdout": text}}
        for at, text in enumerate(cmaps)
    }
    environment = NativeEnvironment()
    environment.filters["extract"] = lambda host, all_hosts: all_hosts[host]
    environment.tests["search"] = lambda text, pattern: bool(re.search(pattern, text))
    found: Any = environment.from_string(variables["sanctl_corosync_runs"]).render(
        ansible_play_hosts=list(hosts), hostvars=hosts, sanctl_cluster_name="lab"
    )
    assert found is runs


def test_the_votes_are_looked_at_before_anything_is_changed_and_as_they_are_counted_then() -> None:
    yaml: Any = importlib.import_module("yaml")
    check, leave, majority = (
        yaml.safe_load((_ROLE / "tasks" / f"{name}.yml").read_text(encoding="utf-8"))
        for name in ("check", "leave", "majority")
    )
    for tasks in (check, leave):
        assert tasks[-1]["ansible.builtin.import_tasks"] == "majority.yml"
    changes = "sanctl_corosync_list_changes | length > 0"
    asked, refused = majority
    assert (asked["when"], refused["when"]) == (changes, changes)
    assert (
        refused["ansible.builtin.assert"]["that"] == "sanctl_corosync_short_of_votes | length == 0"
    )
    # A node that is new has no Pacemaker that it could change, be it the first of the inventory.
    assert "difference(sanctl_corosync_newcomers)" in leave[0]["delegate_to"]


def test_rules_of_others_are_not_overwritten() -> None:
    strange = encoded([conf("nodes").replace("corosync_votequorum", "something_else")])
    with pytest.raises(Exception, match="does not know"):
        filters().tally(strange, "lab", "nodes")
    with pytest.raises(Exception, match="does not know"):
        filters().quorum_section(strange, "lab", "nodes", 2)
