# SPDX-License-Identifier: GPL-2.0-or-later
"""Which node exports a restore point, to whom, under which numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.access import HostAccess
from sanctl.model.device import MINORS
from sanctl.model.host import Host, HostName
from sanctl.model.names import Iqn
from sanctl.plan.device import point_export
from tests.unit.plan.device.test_backups import seen
from tests.unit.plan.device.test_restoring import GOOD

IQN = Iqn.parse("iqn.2026-11.net.example:backup")
NAME = HostName.parse("web1")


def check(here: str, *nodes: str, may_be_active: bool = False) -> None:
    point = GOOD._replace(nodes=nodes)
    point_export.check_exporter(seen(), point, here, may_be_active=may_be_active)


def test_a_standby_exports() -> None:
    check("n2", "n1", "n2")
    check("n1", "n1", "n2", may_be_active=True)
    with pytest.raises(Refused, match=r"SAN-EXP-002.*run it on n2"):
        check("n1", "n1", "n2")
    with pytest.raises(Refused, match=r"SAN-EXP-002.*--on-active"):
        check("n1", "n1")
    with pytest.raises(Refused, match=r"SAN-EXP-001.*run it on n2\)"):
        check("n3", "n1", "n2")
    with pytest.raises(Refused, match=r"SAN-EXP-001.*run it on n1\)"):
        check("n3", "n1")


def test_a_point_that_is_being_deleted_is_not_exported() -> None:
    with pytest.raises(Refused, match="SAN-BKP-005"):
        point_export.check_exporter(
            seen(), GOOD._replace(is_deleting=True), "n2", may_be_active=False
        )


def test_a_point_outlives_its_device_here() -> None:
    gone = seen()
    gone = replace(gone, cib=replace(gone.cib, devices=()))
    point_export.check_exporter(gone, GOOD._replace(nodes=("n1",)), "n1", may_be_active=False)


def test_who_may_log_in() -> None:
    made = seen()
    host = Host(name=NAME, iqns=(Iqn.parse("iqn.2026-11.net.example:web1"),), chap_user="web1")
    made = replace(made, cib=replace(made.cib, hosts=(host,)))
    found = point_export.export_access(made, (IQN, IQN), (NAME,))
    assert found.initiators == (IQN.value,)
    assert found.hosts == (HostAccess("web1", ("iqn.2026-11.net.example:web1",), "web1"),)
    with pytest.raises(Refused, match="SAN-EXP-003"):
        point_export.export_access(made, (), ())
    with pytest.raises(Refused, match="SAN-HOST-010"):
        point_export.export_access(made, host.iqns, ())
    with pytest.raises(Refused, match="SAN-HOST"):
        point_export.export_access(made, (), (HostName.parse("nobody"),))


def test_no_device_has_an_export_s_port_id() -> None:
    """A device's port id is its minor x 32 + the node's id, 1 to 32 (sanctl/drivers/lio.py)."""
    assert min(point_export.PORT_IDS) > max(MINORS) * 32 + 32
    assert max(point_export.PORT_IDS) < 1 << 16
    first = min(point_export.PORT_IDS)
    assert point_export.choose_port_id({1, first, first + 2}) == first + 1
    with pytest.raises(Refused, match="SAN-EXP-004"):
        point_export.choose_port_id(set(point_export.PORT_IDS))


def test_each_restore_point_has_a_serial_of_its_own() -> None:
    serials = {
        point_export.serial_of(point)
        for point in (GOOD, GOOD._replace(token="5" * 16), GOOD._replace(uuid="b" * 32))
    }
    assert len(serials) == 3 and GOOD.uuid not in serials
    assert all(len(serial) == 32 and int(serial, 16) for serial in serials)


def test_what_is_exported_is_named_where_another_was_asked_for() -> None:
    none = point_export.not_exported("web", "good", "n2", ())
    some = point_export.not_exported("web", "good", "n2", ("web@other",))
    assert "it has none" in (none.hint or "") and "web@other" in (some.hint or "")
