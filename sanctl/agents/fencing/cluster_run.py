# SPDX-License-Identifier: GPL-2.0-or-later
"""Which run of the cluster software this is: what was said in an earlier one counts no more."""

from __future__ import annotations

import contextlib

from sanctl.agents.fencing import joined_peers
from sanctl.model.admission import run_word
from sanctl.plan.site.admission import run_of
from sanctl.system.files import read_text_or

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def here() -> str:
    """Return the run of the cluster software on this node; empty: not known.

    Raises:
        OSError: it could not be read.
    """
    return run_of(read_text_or(_BOOT_ID, ""), joined_peers.cluster_start_id())


def here_or_unknown() -> str:
    """Return the run of the cluster software on this node; empty: not known, or not readable."""
    with contextlib.suppress(OSError):
        return here()
    return ""


def word() -> str:
    """Return it as the node publishes it."""
    return run_word(here_or_unknown())
