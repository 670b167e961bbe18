# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's parameters of reservations, from Pacemaker's environment and in the meta-data."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sanctl.agents import device
from sanctl.agents.device_metadata import METADATA
from sanctl.model.published_reservations import CLEAR_PARAMETER, PARAMETER


@pytest.fixture(autouse=True)
def parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCF_RESOURCE_INSTANCE", "vol1:0")
    for key, value in (("uuid", "a" * 32), ("size", "1"), ("pool", "main"), ("nodes", "n1 n2")):
        monkeypatch.setenv(f"OCF_RESKEY_{key}", value)
    monkeypatch.setenv("OCF_RESKEY_minor", "3")


def test_a_device_that_was_made_without_has_none() -> None:
    found = device._device()
    assert (found.reservations, found.clear_reservations) == (False, "")


@pytest.mark.parametrize(("word", "is_on"), [("on", True), ("off", False), ("later", True)])
def test_as_the_parameters_say(word: str, is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCF_RESKEY_reservations", word)
    monkeypatch.setenv("OCF_RESKEY_clear-reservations", "1" * 16)
    found = device._device()
    assert (found.reservations, found.clear_reservations) == (is_on, "1" * 16)


def test_a_change_of_them_restarts_no_device() -> None:
    """Pacemaker restarts a resource for a parameter that is not in its meta-data as reloadable."""
    found = {each.get("name"): each for each in ET.fromstring(METADATA).iter("parameter")}
    assert all(found[name].get("reloadable") == "1" for name in (PARAMETER, CLEAR_PARAMETER))
