# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: the words of a device's parameter `needs`, which come and go with its features."""

from __future__ import annotations

from sanctl.model.cib_change import Change, ClearParameter, SetParameter
from sanctl.model.device import DeviceSpec
from sanctl.model.release_needs import PARAMETER


def needed(device: DeviceSpec, word: str, *, is_on: bool) -> tuple[Change, ...]:
    """Return the change by which a device needs a word, or does no more; nothing where it is so.

    Words of a later release stay: only a release that knows a feature switches it off.
    """
    wanted = sorted({*device.needs, word} if is_on else {*device.needs} - {word})
    if wanted == list(device.needs):
        return ()
    if not wanted:
        return (ClearParameter(name=device.name, parameter=PARAMETER),)
    return (SetParameter(name=device.name, parameter=PARAMETER, value=" ".join(wanted)),)
