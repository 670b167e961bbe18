# SPDX-License-Identifier: GPL-2.0-or-later
"""The output of `attrd_updater --query`: one attribute's values by node."""

from __future__ import annotations

import re

_LINE = re.compile(r'name="[^"]*" host="([^"]*)" value="(.*)"\s*$')


def parse_attributes(text: str) -> dict[str, str]:
    r"""Return the values of an attribute by node.

    A `"` in a value is printed as it is, or as `\"` by newer releases of Pacemaker.
    """
    return {
        found[1]: found[2].replace(r"\"", '"')
        for found in map(_LINE.match, text.splitlines())
        if found
    }
