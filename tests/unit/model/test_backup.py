# SPDX-License-Identifier: GPL-2.0-or-later
"""Names of backups and repositories; a restore that is from a backup."""

from __future__ import annotations

import pytest

from sanctl.errors import UsageError
from sanctl.model.backup import OWN_POINT, BackupName, parse_repository_name
from sanctl.model.device_restore import COPYING, RestoreOrder, closes
from sanctl.model.restore_point import parse_point_name

NAME = BackupName(device="web-1", taken_s=1_795_580_901, point="before-upgrade")


def test_a_name_is_read_as_it_was_written() -> None:
    assert str(NAME) == "web-1@before-upgrade.20261125-042821"
    assert BackupName.parse(str(NAME)) == NAME and not NAME.is_of_own_point
    assert NAME.image == "web-1.img" and NAME.digest_file == "web-1.img.sha256"
    assert BackupName("web", 1, parse_point_name(OWN_POINT)).is_of_own_point


@pytest.mark.parametrize(
    "text",
    [
        "", "web", "web@one", "web@one.20261125", "web@one.20261125-042821.writing",
        "web@one.20261125-042821.writing.checkpoint", "web@one.20261325-042821",
        "@one.20261125-042821", "web@.20261125-042821", "web/../x@one.20261125-042821",
        "Web@one.20261125-042821", "web@one.20261125-042821\n", "web@a.b.20261125-042821",
    ],
)  # fmt: skip
def test_what_is_no_name(text: str) -> None:
    assert BackupName.read(text) is None
    with pytest.raises(UsageError, match="SAN-BKP-001"):
        BackupName.parse(text)


@pytest.mark.parametrize("text", ["", "Nas", "1nas", "../nas", "nas.key", "a" * 32, "nas\n"])
def test_what_is_no_name_of_a_repository(text: str) -> None:
    with pytest.raises(UsageError, match="SAN-NAME-009"):
        parse_repository_name(text)
    assert parse_repository_name("nas-2") == "nas-2"


def test_the_order_of_a_restore_from_a_backup_keeps_hosts_out() -> None:
    order = RestoreOrder.from_backup("1" * 16, "nas", str(NAME), 1000)
    assert RestoreOrder.parse(str(order)) == order
    assert order.backup == ("nas", str(NAME)) and order.state == COPYING and closes(str(order))
    assert order.source == f"backup nas::{NAME}"
    other = order._replace(point="good")
    assert other.backup is None and other.source == "restore point good"
