# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry point `sanctl`: finds the command, turns every error into a message and an exit status."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from typing import Any, NoReturn

import click

from sanctl import __version__
from sanctl.cli.help_sections import SectionedGroup
from sanctl.cli.interruption import (
    HungUp,
    Terminated,
    end_by_signal,
    problem_of,
    signals_caught,
    status_of,
)
from sanctl.cli.output import wants_json, write_json
from sanctl.errors import ExitStatus, Problem, SanctlError

# Each command lives in a module of its own and is imported only when it is used.
COMMANDS = {
    "status": "sanctl.cli.commands.status:status",
    "sync": "sanctl.cli.commands.sync:sync",
    "doctor": "sanctl.cli.commands.doctor:doctor",
    "report": "sanctl.cli.commands.report:report",
    "explain": "sanctl.cli.commands.explain:explain",
    "device": "sanctl.cli.commands.device:device",
    "snapshot": "sanctl.cli.commands.snapshot:snapshot",
    "backup": "sanctl.cli.commands.backup:backup",
    "replicate": "sanctl.cli.commands.replicate:replicate",
    "site": "sanctl.cli.commands.site:site",
    "target": "sanctl.cli.commands.target:target",
    "host": "sanctl.cli.commands.host:host",
    "pool": "sanctl.cli.commands.pool:pool",
    "node": "sanctl.cli.commands.node:node",
    "cluster": "sanctl.cli.commands.cluster:cluster",
}
# A checkout has the laboratory, too; the release on a node does not (build_wheel.py).
LABORATORY_COMMANDS = {
    "lab": "sanctl.lab.machines.commands:lab",
    "demo": "sanctl.lab.demo.commands:demo",
    "bench": "sanctl.lab.bench.commands:bench",
    "chaos": "sanctl.lab.chaos.commands:chaos",
}
_SECTIONS = {
    "See how things are": ("status", "sync", "doctor", "report", "explain"),
    "Manage storage": (
        "device",
        "snapshot",
        "backup",
        "replicate",
        "site",
        "target",
        "host",
        "pool",
    ),
    "Manage the cluster": ("node", "cluster"),
    "Try it out on one machine": ("lab", "demo", "bench", "chaos"),
}


def _commands() -> dict[str, str]:
    has_laboratory = importlib.util.find_spec("sanctl.lab") is not None
    return COMMANDS | LABORATORY_COMMANDS if has_laboratory else COMMANDS


class _LazyGroup(SectionedGroup):
    """A group whose subcommands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = _commands().get(cmd_name)
        if target is None:
            if cmd_name in LABORATORY_COMMANDS:
                ctx.fail(f"'{cmd_name}' is part of a checkout of sanctl, not of a node's release")
            return super().get_command(ctx, cmd_name)
        module, attribute = target.split(":")
        command: Any = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(
    # A group without a command is a mistake; its exit status must not depend on click's version.
    cls=_LazyGroup,
    sections=_SECTIONS,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="sanctl")
def cli() -> None:
    """Shared block storage that survives losing a server.

    Exit status: 0 done; 1 degraded (status, doctor, report); 2 command line wrong; 3 configuration
    wrong; 4 refused; 5 a program or an agent failed; 6 cluster not reachable; 7 deadline passed;
    8 done in part; 9 the CIB was changed by others; 70 an error in sanctl; 129, 130, 143 stopped
    by a lost terminal, Ctrl-C, SIGTERM.

    'sanctl explain CODE' says what a code such as SAN-DEV-002 means.
    """


def _fail(status: int, *problems: Problem) -> None:
    """Write an error as text, and as JSON if asked for, and exit."""
    if wants_json(sys.argv[1:]):
        write_json(ExitStatus(status), None, problems)
    for problem in problems:
        click.echo(str(problem), err=True)
    sys.exit(status)


def _end_interrupted(error: KeyboardInterrupt) -> NoReturn:
    """Say what goes on, and end as the signal would have had it."""
    # Where the terminal is gone nobody reads it.
    with contextlib.suppress(OSError, SystemExit):
        _fail(status_of(error), problem_of(error, sys.argv[1:]))
    end_by_signal(error)
    sys.exit(status_of(error))


def _interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return what has ended the command, if an error came of that: no terminal, no output."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def main() -> None:
    """Run the command line and exit with the status its outcome has."""
    try:
        with signals_caught():
            result = cli.main(standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.Abort as stop:
        # click raises this for Ctrl-C, too; at a question a Ctrl-C looks like a no.
        if isinstance(stop.__cause__, KeyboardInterrupt):
            _end_interrupted(stop.__cause__)
        # A lost terminal, or SIGTERM, does not: click hides them there (`from None`).
        if isinstance(stopped := _interruption(stop), (HungUp, Terminated)):
            _end_interrupted(stopped)
        _fail(
            ExitStatus.USAGE,
            Problem(
                "SAN-CLI-002", "not confirmed: nothing was changed", "--yes confirms in advance"
            ),
        )
    except click.UsageError as error:
        if error.ctx is not None and not sys.argv[1 + error.ctx.command_path.count(" ") :]:
            # A group without a command: its help says more than an error would.
            click.echo(error.ctx.get_help(), err=True)
            sys.exit(ExitStatus.USAGE)
        hint = f"'{error.ctx.command_path} --help' shows how" if error.ctx else ""
        # click lists choices on lines of their own, with tabs.
        text = " ".join(error.format_message().split())
        _fail(ExitStatus.USAGE, Problem("SAN-CLI-001", text, hint))
    except click.ClickException as error:
        _fail(ExitStatus.USAGE, Problem("SAN-CLI-001", error.format_message()))
    except SanctlError as error:
        _fail(error.exit_status, *error.problems)
    except BrokenPipeError as error:
        if stopped := _interruption(error):
            _end_interrupted(stopped)
        # The reader of the output has closed the pipe.
        sys.stderr.close()
        sys.exit(ExitStatus.COMMAND)
    except Exception as error:
        if isinstance(error, OSError) and (stopped := _interruption(error)):
            _end_interrupted(stopped)
        traceback.print_exc()
        _fail(
            ExitStatus.BUG,
            Problem(
                "SAN-BUG-001",
                f"an error in sanctl itself: {type(error).__name__}: {error}",
                "please report the error with the lines above",
            ),
        )
    else:
        # click returns the status of an early exit (--help, Exit) instead of raising it.
        sys.exit(result if isinstance(result, int) else 0)
