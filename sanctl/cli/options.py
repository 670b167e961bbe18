# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several commands share: --output, --timeout, --accept, --yes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def output_option(command: Command) -> Command:
    """Add `--output` to a command."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="How the result is written.",
    )(command)


def timeout_option(default_s: int) -> Callable[[Command], Command]:
    """Add `--timeout` to a command that waits."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the effect; the change itself stays.",
    )


def accept_option(command: Command) -> Command:
    """Add `--accept` to a command that refuses for reasons an operator may accept by code."""
    return click.option(
        "--accept",
        "accepted",
        multiple=True,
        metavar="CODE",
        help="Go on despite the refusal with this code, and no other.",
    )(command)


def yes_option(command: Command) -> Command:
    """Add `--yes` to a command that asks before it does something that cannot be undone."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)
