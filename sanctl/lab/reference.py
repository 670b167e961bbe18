# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes docs/reference/cli.md, errors.md and json.md from the program itself.

python -m sanctl.lab.reference [DIRECTORY]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

import click

from sanctl.cli.codes import all_codes
from sanctl.cli.main import cli
from sanctl.cli.output import SCHEMA, STATUS_WORDS
from sanctl.errors import ExitStatus
from sanctl.lab.documents.by_command import ALL_DOCUMENTS
from sanctl.system.files import write_atomically

_DIRECTORY = "docs/reference"
_MADE = "<!-- Made by `python -m sanctl.lab.reference`: do not edit. -->"

_FAMILIES = {
    "AGENT": "resource agents and DRBD handlers",
    "BENCH": "measurements",
    "BUG": "errors in sanctl itself",
    "CIB": "reading the cluster's state",
    "CLI": "the command line",
    "CLU": "talking to the cluster",
    "CMD": "programs sanctl starts",
    "CONF": "cluster.toml and the inventory",
    "DEMO": "the demonstration",
    "DEV": "devices",
    "DM": "device-mapper",
    "DOC": "findings of `sanctl doctor` on a node",
    "DRBD": "DRBD",
    "HLT": "findings of `sanctl status` and `sanctl doctor`",
    "HOST": "hosts",
    "LAB": "the laboratory",
    "LIO": "the iSCSI target",
    "LOOP": "loop devices",
    "NAME": "names and sizes",
    "NODE": "nodes",
    "POOL": "pools",
    "SNAP": "restore points",
    "SYNC": "resync and verify",
    "WAIT": "waiting",
}

_STATUSES = {
    ExitStatus.OK: "done, or nothing to do; `status` and `doctor`: healthy",
    ExitStatus.DEGRADED: "`status`, `doctor`: something is wrong",
    ExitStatus.USAGE: "the command line is wrong, or a question was answered with no",
    ExitStatus.CONFIG: "a configuration file is wrong",
    ExitStatus.REFUSED: "understood and refused: it would endanger data, or cannot hold now",
    ExitStatus.COMMAND: "a program or an agent failed",
    ExitStatus.UNREACHABLE: "the cluster cannot be observed from here",
    ExitStatus.NOT_CONVERGED: "the change is made, its effect was not seen before the deadline",
    ExitStatus.PARTIAL: "done in part: the rest was refused, or cannot be done now",
    ExitStatus.BUSY: "others were changing the same thing",
    ExitStatus.BUG: "an error in sanctl",
    ExitStatus.INTERRUPTED: "stopped by Ctrl-C",
    ExitStatus.HUNG_UP: "stopped by the end of its terminal (SIGHUP)",
    ExitStatus.TERMINATED: "stopped by SIGTERM",
}


def commands_page() -> str:
    """Return the text of cli.md."""
    lines = [
        "# Commands",
        "",
        _MADE,
        "",
        "Results go to standard output, everything else to standard error. Commands that have a",
        "result take `--output json` and then write one object, also when they fail:",
        "[JSON](json.md).",
        "",
        "| exit status | means |",
        "| --- | --- |",
        *(f"| {status.value} | {meaning} |" for status, meaning in _STATUSES.items()),
        "",
    ]
    with click.Context(cli, info_name="sanctl") as context:
        lines.extend(_group(cli, context, ()))
    return "\n".join(lines).rstrip() + "\n"


def _group(group: click.Group, context: click.Context, path: tuple[str, ...]) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=context) as inner:
            if isinstance(command, click.Group):
                yield from _group(command, inner, (*path, name))
            elif not command.hidden:
                yield from _command(command, inner, (*path, name))


def _command(
    command: click.Command, context: click.Context, path: tuple[str, ...]
) -> Iterator[str]:
    words = ["sanctl", *path]
    options: list[click.Option] = []
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            options.append(parameter)
        else:
            words.append(_argument(parameter, context))
    yield from (f"## {' '.join(('sanctl', *path))}", "", f"    {' '.join(words)} [OPTIONS]", "")
    for line in (command.help or "").split("\n"):
        yield line.strip().replace("\b", "")
    yield ""
    yield from ("| option | meaning | default |", "| --- | --- | --- |")
    for option in options:
        if not option.hidden:
            yield _option(option)
    yield ""


def _argument(parameter: click.Parameter, context: click.Context) -> str:
    del context
    shown = (parameter.metavar if isinstance(parameter, click.Argument) else None) or (
        parameter.name or ""
    ).upper()
    if parameter.nargs == -1:
        shown += "..."
    return shown if parameter.required else f"[{shown}]"


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if not option.is_flag:
        kind = option.type
        value = option.metavar or (
            "|".join(str(choice) for choice in kind.choices)
            if isinstance(kind, click.Choice)
            else kind.name.upper()
        )
        names += f" {value}".replace("|", "\\|")
    default = _default(option)
    help_text = (option.help or "").replace("|", "\\|")
    return f"| {names} | {help_text} | {default} |"


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    default: Any = option.default
    # click 8.2 and later marks "none given" by a value of its own.
    if default is None or option.is_flag or option.multiple or "UNSET" in repr(default):
        return ""
    return f"`{default}`"


def codes_page() -> str:
    """Return the text of errors.md."""
    lines = [
        "# Codes",
        "",
        _MADE,
        "",
        "Every error and every finding has a code, which never changes its meaning.",
        "`sanctl explain CODE` says the same as this page.",
    ]
    family = ""
    for code, meaning in all_codes().items():
        own = code.split("-")[1]
        if own != family:
            family = own
            lines += ["", f"## SAN-{family}: {_FAMILIES.get(family, family.lower())}", ""]
        lines.append(f"* **{code}** {meaning}")
    return "\n".join(lines) + "\n"


def documents_page() -> str:
    """Return the text of json.md."""
    words = {status: f"`{word}` ({status.value})" for status, word in STATUS_WORDS.items()}
    lines = [
        "# JSON",
        "",
        _MADE,
        "",
        "With `--output json` a command writes one object on standard output, whatever comes",
        "of it:",
        "",
        "| field | type | meaning |",
        "| --- | --- | --- |",
        f"| `schema` | number | {SCHEMA}: the version of all that is promised here |",
        f"| `status` | text | the exit status as a word: {', '.join(words.values())} |",
        "| `data` | see below | the result; null if the command failed |",
        "| `problems` | list | what went wrong, each with `code`, `text` and `hint` (what to do) |",
        "",
        "**The promise.** A field that is on this page keeps its name, type and meaning, and a",
        "word that a field can hold keeps its meaning, for as long as `schema` is the same number.",
        "New fields, new words and new [codes](errors.md) may come at any time: pass over what you",
        "do not know. The order of fields means nothing. Sizes are bytes, times seconds. Null",
        "is never zero and never empty: it is what is not known. Decide by `status`, `code` and",
        "`state`, not by texts, which are for people.",
        "",
        "Progress goes to standard error, so standard output can be piped to a program as it is.",
        "",
        "| command | `data` |",
        "| --- | --- |",
    ]
    described: dict[str, type] = {}
    lines += (
        f"| `sanctl {command}` | {_type_name(document, described)} |"
        for command, document in sorted(ALL_DOCUMENTS.items())
    )
    sections: dict[str, list[str]] = {}
    while described.keys() - sections.keys():
        for name in described.keys() - sections.keys():
            sections[name] = list(_document(described[name], described))
    for _, section in sorted(sections.items()):
        lines += section
    return "\n".join(lines) + "\n"


def _document(kind: type, described: dict[str, type]) -> Iterator[str]:
    yield from ("", f"## {kind.__name__}", "", kind.__doc__ or "", "")
    yield from ("| field | type | meaning |", "| --- | --- | --- |")
    for field, hint in get_type_hints(kind, include_extras=True).items():
        assert get_origin(hint) is Annotated, f"{kind.__name__}.{field} has no meaning"
        inner, meaning = get_args(hint)
        yield f"| `{field}` | {_type_name(inner, described)} | {meaning} |"


_SIMPLE = {str: "text", int: "whole number", float: "number", bool: "boolean", NoneType: "null"}


def _type_name(hint: Any, described: dict[str, type]) -> str:
    """Return a type in words, and note the documents that it mentions."""
    if get_origin(hint) is list:
        return f"list of {_type_name(get_args(hint)[0], described)}"
    if get_origin(hint) is UnionType:
        return " or ".join(_type_name(part, described) for part in get_args(hint))
    if is_typeddict(hint):
        described[hint.__name__] = hint
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return _SIMPLE[hint]


PAGES = {"cli.md": commands_page, "errors.md": codes_page, "json.md": documents_page}


def main() -> None:
    """Write all pages."""
    directory = sys.argv[1] if len(sys.argv) > 1 else _DIRECTORY
    for name, page in PAGES.items():
        write_atomically(f"{directory}/{name}", page())


if __name__ == "__main__":
    main()
