# SPDX-License-Identifier: GPL-2.0-or-later
"""What a node says of hosts at a device that awaits its second sites: let in, or held.

Words in the state that a replica's agent publishes. Light: the agents import it.
"""

from __future__ import annotations

LET_IN_WORD = "let-in=1"
HELD_KEY = "held"
#: Why hosts are kept out, where no site has been asked yet.
ASKING = "asking"
_UNKNOWN_RUN = "?"


def held_word(run: str, why: str) -> str:
    """Return what is published while hosts are kept out.

    Args:
        run: the run of the cluster software on the node; empty: not known.
        why: a code; empty: no site has been asked yet.
    """
    return f"{run or _UNKNOWN_RUN}:{why or ASKING}"


def parse_held(word: str) -> tuple[str, str] | None:
    """Read what `held_word` gave; None for anything else."""
    run, sign, why = word.partition(":")
    return ("" if run == _UNKNOWN_RUN else run, why or ASKING) if sign and run else None
