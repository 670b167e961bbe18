# SPDX-License-Identifier: GPL-2.0-or-later
"""The rollout sees what of a node that is its own host is not in force, whoever wrote the files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml  # type: ignore[import-untyped]

_TASKS = Path(__file__).resolve().parents[3] / "ansible/roles/sanctl_host/tasks/own_host.yml"
_MAP, _PART, _OTHER = "mpath-36001405aa", "part1-mpath-36001405aa", "LVM-abc"


def task(name: str) -> dict[str, Any]:
    (found,) = (each for each in yaml.safe_load(_TASKS.read_text()) if each["name"] == name)
    return dict(found)


def not_in_force(
    tmp_path: Path,
    *,
    reload: str = "no\n\nno\n",
    watermark: str = "100",
    maps: tuple[tuple[str, str, str | None], ...] = (),
) -> list[str]:
    """Run the script; `maps` are device-mapper's UUID, max_ratio and strict_limit."""
    for name, printed in (("systemctl", reload), ("sysctl", watermark)):
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '%s' '{printed}'\n")
        (tmp_path / name).chmod(0o755)
    for number, (uuid, ratio, strict) in enumerate(maps):
        folder = tmp_path / f"block/dm-{number}"
        (folder / "dm").mkdir(parents=True)
        (folder / "bdi").mkdir()
        (folder / "dm/uuid").write_text(f"{uuid}\n")
        (folder / "bdi/max_ratio").write_text(f"{ratio}\n")
        if strict is not None:
            (folder / "bdi/strict_limit").write_text(f"{strict}\n")
    script = task("See what of them is not in force")["ansible.builtin.shell"]["cmd"]
    script = (
        jinja2.Environment(autoescape=False)
        .from_string(script.replace("/sys/block", f"{tmp_path}/block"))
        .render(
            sanctl_host_own_units=["sanctl-logins.service"],
            sanctl_host_own_watermark=100,
            sanctl_host_own_dirty_percent=10,
        )
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_where_all_is_in_force_a_second_run_changes_nothing(tmp_path: Path) -> None:
    maps = ((_MAP, "10", "1"), (_PART, "10", None), (_OTHER, "100", "0"))
    assert not_in_force(tmp_path, maps=maps) == []


def test_without_a_device_either(tmp_path: Path) -> None:
    assert not_in_force(tmp_path) == []


def test_a_drop_in_that_systemd_has_not_read(tmp_path: Path) -> None:
    assert not_in_force(tmp_path, reload="no\n\nyes\n\nno\n") == ["units"]


@pytest.mark.parametrize("value", ["10", ""])
def test_a_setting_of_the_kernel_that_is_not_loaded(tmp_path: Path, value: str) -> None:
    assert not_in_force(tmp_path, watermark=value) == ["sysctl"]


@pytest.mark.parametrize("found", [(_MAP, "100", "1"), (_PART, "10", "0"), (_MAP, "100", None)])
def test_a_map_that_no_rule_has_been_applied_to(
    tmp_path: Path, found: tuple[str, str, str | None]
) -> None:
    assert not_in_force(tmp_path, maps=(found,)) == [f"{tmp_path}/block/dm-0/bdi"]


def test_what_is_seen_decides_and_is_seen_in_check_mode() -> None:
    seen = task("See what of them is not in force")
    assert (seen["check_mode"], seen["changed_when"]) == (False, False)
    when = task("Apply them now")["when"]
    assert f"{seen['register']}.stdout | length > 0" in when
