# SPDX-License-Identifier: GPL-2.0-or-later
"""The order in which systemd starts and stops what the rollout installs, as its units say it."""

from __future__ import annotations

from pathlib import Path

import pytest

_ROLES = Path(__file__).resolve().parents[3] / "ansible/roles"
_UNITS = sorted(
    path
    for path in _ROLES.glob("*/templates/*.j2")
    if "[Unit]" in path.read_text() or "[Service]" in path.read_text()
)


def values(text: str, key: str) -> list[str]:
    """Return the words of all lines of a key; systemd adds them up."""
    lines = (line.partition("=") for line in text.splitlines())
    return [word for name, _, value in lines if name == key for word in value.split()]


@pytest.mark.parametrize("unit", _UNITS, ids=lambda path: path.name)
def test_a_unit_that_starts_early_waits_for_what_it_reads(unit: Path) -> None:
    """Without default dependencies it runs before /var is mounted, if nothing is said.

    The notes on a pool then seem to be missing, and its flash is emptied.
    """
    text = unit.read_text()
    if values(text, "DefaultDependencies") != ["no"]:
        return
    needed = {"/var/lib/sanctl/pools", "/opt/sanctl", "/usr/lib/sanctl", "/etc/sanctl"}
    assert needed <= set(values(text, "RequiresMountsFor"))


def test_the_unit_of_a_pools_flash_is_the_early_one() -> None:
    early = [one.name for one in _UNITS if values(one.read_text(), "DefaultDependencies")]
    assert early == ["service.j2"]


def test_a_pool_behind_flash_is_not_mounted_read_only() -> None:
    text = (_ROLES / "sanctl_pool_caches/templates/mount.j2").read_text()
    assert values(text, "ReadWriteOnly") == ["yes"]
