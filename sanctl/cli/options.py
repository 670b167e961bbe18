# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several commands share: --output, --timeout, --accept, --yes."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import click

from sanctl.errors import Problem, UsageError
from sanctl.model.cache_policy import CacheMode
from sanctl.model.point_hook import DEFAULT_LIMIT_S, PointHook
from sanctl.plan.cache.cache_status import one_replica_text

Command = Callable[..., Any]

_WEEK_S = 7 * 86400


# Generic since click 8.4, and not yet so in the click of Debian.
class Number(click.ParamType):  # type: ignore[type-arg]
    """A number within bounds, which `nan` and `inf` are not: click takes them for floats."""

    name = "number"

    def __init__(self, low: float, high: float, what: str) -> None:
        self._low, self._high, self._what = low, high, what

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or end with a usage error."""
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if not self._low <= number <= self._high:  # also false for nan
            self.fail(
                f"{str(value)[:40]!r} is not {self._what} from {self._low:g} to {self._high:,g}",
                param,
                ctx,
            )
        return number


#: Up to a week: a longer wait is a mistake, and one without an end is none.
SECONDS = Number(0, _WEEK_S, "a number of seconds")
#: Between two runs of a timer: up to ten years; 0, where that is taken: it is not known.
TIMER = Number(60, 520 * _WEEK_S, "a number of seconds")
INTERVAL = Number(0, 520 * _WEEK_S, "a number of seconds")


def output_option(command: Command) -> Command:
    """Add `--output` to a command."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Form of the result.",
    )(command)


def timeout_option(default_s: int) -> Callable[[Command], Command]:
    """Add `--timeout` to a command that waits."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=SECONDS,
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the effect. The change itself stays.",
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


def ask_before_one_replica(name: str, mode: CacheMode, *, yes: bool) -> None:
    """Say on standard error what one replica means; where a person types, ask whether to go on.

    A script is not asked: it has named the number, and nothing is lost by the change itself.

    Raises:
        click.Abort: the person said no.
    """
    click.echo(one_replica_text(name, mode), err=True)
    if not yes and sys.stdin.isatty():
        click.confirm("Go on with one replica?", abort=True, err=True)


def yes_option(command: Command) -> Command:
    """Add `--yes` to a command that asks before it does something that cannot be undone."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def devices_timeout_option(command: Command) -> Command:
    """Add `--timeout` to a command for one device or several."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=SECONDS,
        metavar="SECONDS",
        help="How long to wait for the effect. The change itself stays. Default: 180, and 20 more"
        " for each device after the first.",
    )(command)


def hook_options(command: Command) -> Command:
    """Add `--hook`, `--hook-limit` and `--or-crash`; the command gets the `hook`, or None."""

    @functools.wraps(command)
    def with_hook(
        *, hook_name: str | None, hook_limit_s: int | None, or_crash: bool, **given: Any
    ) -> Any:
        return command(hook=_given_hook(hook_name, hook_limit_s, or_crash=or_crash), **given)

    added = with_hook
    for option in (
        click.option(
            "--or-crash",
            is_flag=True,
            help="If the hook fails, make a crash-consistent restore point all the same.",
        ),
        click.option(
            "--hook-limit",
            "hook_limit_s",
            type=int,
            metavar="SECONDS",
            help="For how long the hook may keep the application quiet: 5 to 45. "
            f"[{DEFAULT_LIMIT_S}]",
        ),
        click.option(
            "--hook",
            "hook_name",
            metavar="HOOK",
            help="Keep the application quiet by the program of this name in /etc/sanctl/hooks.d of "
            "the node that serves the device.",
        ),
    ):
        added = option(added)
    return added


def _given_hook(name: str | None, limit_s: int | None, *, or_crash: bool) -> PointHook | None:
    if name is not None:
        limit_s = DEFAULT_LIMIT_S if limit_s is None else limit_s
        return PointHook.given(name, limit_s, or_crash=or_crash)
    if limit_s is not None or or_crash:
        raise UsageError(
            Problem("SAN-HOOK-001", "--hook-limit and --or-crash go with a hook", "add --hook HOOK")
        )
    return None
