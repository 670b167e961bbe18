# SPDX-License-Identifier: GPL-2.0-or-later
"""Groups the commands in `--help` under headings, in an order that operators look them up in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

Sections = Mapping[str, Sequence[str]]
_OTHER = "Other commands"


class SectionedGroup(click.Group):
    """A group of commands whose help lists them by sections.

    Args:
        sections: headings, each with the names of its commands; a command that no section names
            is listed at the end.
    """

    def __init__(self, *args: Any, sections: Sections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the sections."""
        return [name for _, names in self._by_section(super().list_commands(ctx)) for name in names]

    def _by_section(self, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        left = set(names)
        for heading, section in self._sections.items():
            yield heading, [name for name in section if name in left]
            left -= {*section}
        yield _OTHER, sorted(left)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings, aligned over all sections."""
        names = self.list_commands(ctx)
        width = max(map(len, names), default=0)
        for heading, section in self._by_section(names):
            rows = []
            for name in section:
                command = self.get_command(ctx, name)
                if command is not None and not command.hidden:
                    text = command.get_short_help_str(formatter.width - 6 - width)
                    rows.append((name.ljust(width), text))
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
