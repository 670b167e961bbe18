# SPDX-License-Identifier: GPL-2.0-or-later
"""Several names in a text. Light: the agents import it."""

from __future__ import annotations

from collections.abc import Sequence


def in_words(names: Sequence[str]) -> str:
    """Return names as a text has them: `n1`, `n1 and n2`, `n1, n2 and n3`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
