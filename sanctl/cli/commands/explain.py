# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl explain`."""

from __future__ import annotations

import click

from sanctl.cli.codes import all_codes
from sanctl.cli.options import output_option
from sanctl.cli.output import finish
from sanctl.errors import Problem, UsageError


@click.command()
@click.argument("code")
@output_option
def explain(code: str, output: str) -> None:
    """Say what an error or finding code means, such as SAN-DEV-002."""
    codes = all_codes()
    wanted = code.strip().upper()
    if wanted not in codes:
        family = wanted.rpartition("-")[0]
        near = sorted(known for known in codes if known.startswith(f"{family}-"))
        raise UsageError(
            Problem(
                "SAN-CLI-004",
                f"there is no code {code!r}",
                f"codes are: {', '.join(near)}" if near else "a code looks like SAN-DEV-002",
            )
        )
    finish(
        output,
        data={"code": wanted, "meaning": codes[wanted]},
        text=lambda: print(f"{wanted}: {codes[wanted]}"),
    )
