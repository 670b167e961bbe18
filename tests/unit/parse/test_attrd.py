# SPDX-License-Identifier: GPL-2.0-or-later
"""Node attributes as attrd_updater prints them."""

from __future__ import annotations

from sanctl.parse.attrd import parse_attributes


def test_values_by_node() -> None:
    text = 'name="sanctl.sync" host="n1" value=""\nname="sanctl.sync" host="n2" value="vm1,fast"\n'
    assert parse_attributes(text) == {"n1": "", "n2": "vm1,fast"}
    assert parse_attributes("attrd_updater: none\n") == {}


def test_quotes_in_values() -> None:
    """Pacemaker 2.1.5 prints them as they are, 3.0.0 with a backslash."""
    plain = 'name="sanctl.reservations.vm1" host="n1" value="{"holder":null}"'
    escaped = plain.replace('{"holder":', '{\\"holder\\":')
    assert escaped != plain
    for text in (plain, escaped):
        assert parse_attributes(text) == {"n1": '{"holder":null}'}
