# SPDX-License-Identifier: GPL-2.0-or-later
"""Node attributes as attrd_updater prints them."""

from __future__ import annotations

from sanctl.parse.attrd import parse_attributes


def test_values_by_node() -> None:
    text = 'name="sanctl.sync" host="n1" value=""\nname="sanctl.sync" host="n2" value="vm1,fast"\n'
    assert parse_attributes(text) == {"n1": "", "n2": "vm1,fast"}
    assert parse_attributes("attrd_updater: none\n") == {}
