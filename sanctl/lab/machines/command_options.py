# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that the commands of `sanctl lab` share (--name, --output), and the lab they name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from sanctl.cli.options import Number
from sanctl.errors import Problem, Refused
from sanctl.lab.machines import lab_state, spec
from sanctl.lab.machines.spec import Network

# The heartbeat network is `hb` in a node's interface names; both words are understood.
CABLES = (*(network.value for network in Network), "heartbeat")
Command = Callable[..., Any]

PERCENT = Number(0, 100, "a percentage")
DELAY_MS = Number(0, 60_000, "a delay in milliseconds")


def name_option(command: Command) -> Command:
    """Add `--name`."""
    return click.option(
        "--name", envvar="SANCTL_LAB", default=spec.DEFAULT_NAME, show_default=True,
        help="Which lab; several run side by side.",
    )(command)  # fmt: skip


def output_option(command: Command) -> Command:
    """Add `--output`."""
    return click.option(
        "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
        help="How the result is written.",
    )(command)  # fmt: skip


def network_named(cable: str) -> Network:
    """Return the network that one of CABLES means."""
    return Network.HEARTBEAT if cable == "heartbeat" else Network(cable)


def require_up(name: str) -> lab_state.Lab:
    """Return the lab of that name.

    Raises:
        Refused: there is none, or it is down.
    """
    found = lab_state.load(name)
    if not found.is_up():
        raise Refused(Problem("SAN-LAB-004", f"lab {name} is down", f"sanctl lab up --name {name}"))
    return found


def print_json(data: dict[str, Any]) -> None:
    """Print a result in the form all commands share."""
    click.echo(json.dumps({"schema": 1, "status": "ok", "data": data, "problems": []}, indent=2))
