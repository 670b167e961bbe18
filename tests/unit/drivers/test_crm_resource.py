# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from sanctl.drivers import cib, crm_resource
from sanctl.errors import CommandError
from tests.fakes.runner import FakeRunner


@pytest.mark.parametrize("status", [0, 6, 105])
def test_a_meta_attribute_is_deleted_by_one_change_of_the_cib(status: int) -> None:
    runner = FakeRunner((status, "", ""))
    crm_resource.delete_meta_attribute(runner, "vol1", "sanctl-new", timeout_s=1.0)
    ((argv, _),) = runner.calls
    assert argv[0] == "cibadmin" and "--sync-call" in argv
    assert argv[-1] == "//primitive[@id='vol1']/meta_attributes/nvpair[@name='sanctl-new']"


def test_a_refused_change_is_an_error() -> None:
    with pytest.raises(CommandError):
        crm_resource.delete_meta_attribute(
            FakeRunner((103, "", "")), "vol1", "sanctl-new", timeout_s=1.0
        )


def test_nothing_to_delete_is_no_change() -> None:
    runner = FakeRunner()
    cib.delete_at(runner, [], timeout_s=1.0)
    assert runner.calls == []
