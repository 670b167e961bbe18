# SPDX-License-Identifier: GPL-2.0-or-later
"""What a node says of hosts at a device that awaits its second sites: let in, or held.

Words in the state that a replica's agent publishes. Each names the run of the cluster software in
which it holds: what a node has said in an earlier run says nothing. Light: the agents import it.
"""

from __future__ import annotations

LET_IN_KEY, HELD_KEY = "let-in", "held"
#: Why hosts are kept out, where no site has been asked yet.
ASKING = "asking"
_UNKNOWN_RUN = "?"


def run_word(run: str) -> str:
    """Return a run as it is published; empty: not known."""
    return run or _UNKNOWN_RUN


def parse_run(word: str | None) -> str | None:
    """Read what `run_word` gave; None: nothing is published."""
    return "" if word == _UNKNOWN_RUN else word


def says_of_hosts(state: str) -> bool:
    """Whether a replica's state has a word of this module."""
    return any(_run_in(word) is not None for word in state.split(" "))


def without_other_runs(state: str, run: str) -> str:
    """Return a replica's state without the words that its node has said in another run.

    Args:
        state: the state as text.
        run: the run of the cluster software on the node now; empty: not known.
    """
    return " ".join(word for word in state.split(" ") if _run_in(word) in {None, run_word(run)})


def _run_in(word: str) -> str | None:
    key, sign, value = word.partition("=")
    return value.partition(":")[0] if sign and key in {LET_IN_KEY, HELD_KEY} else None


def held_word(run: str, why: str) -> str:
    """Return what is published while hosts are kept out.

    Args:
        run: the run of the cluster software on the node; empty: not known.
        why: a code; empty: no site has been asked yet.
    """
    return f"{run_word(run)}:{why or ASKING}"


def parse_held(word: str) -> tuple[str, str] | None:
    """Read what `held_word` gave; None for anything else."""
    run, sign, why = word.partition(":")
    return ("" if run == _UNKNOWN_RUN else run, why or ASKING) if sign and run else None
