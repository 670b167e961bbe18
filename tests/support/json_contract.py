# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares a command's JSON output with the fields that docs/reference/json.md promises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from sanctl.cli.output import SCHEMA, STATUS_WORDS
from sanctl.lab.documents.by_command import ALL_DOCUMENTS


def breaches(words: str, text: str) -> list[str]:
    """Return what is wrong with the JSON that a command printed; nothing if it keeps the promise.

    A field too many is as wrong as one too few: programs would use it, and it is not promised.
    """
    frame = json.loads(text)
    if set(frame) != {"schema", "status", "data", "problems"}:
        return [f"the frame has {sorted(frame)}"]
    wrong = [] if frame["schema"] == SCHEMA else [f"schema is {frame['schema']}"]
    if frame["status"] not in STATUS_WORDS.values():
        wrong.append(f"status is {frame['status']!r}")
    wrong += (
        f"a problem has {sorted(problem)}"
        for problem in frame["problems"]
        if set(problem) != {"code", "text", "hint"}
    )
    if frame["data"] is not None:
        wrong += _breaches(frame["data"], ALL_DOCUMENTS[words], "data")
    return wrong


def _breaches(value: Any, hint: Any, where: str) -> Iterator[str]:
    origin = get_origin(hint)
    if origin is UnionType:
        tries = [list(_breaches(value, part, where)) for part in get_args(hint)]
        if all(tries):
            yield from min(tries, key=len)
    elif origin is list:
        if not isinstance(value, list):
            yield f"{where} is no list"
            return
        for number, each in enumerate(value):
            yield from _breaches(each, get_args(hint)[0], f"{where}[{number}]")
    elif is_typeddict(hint):
        if not isinstance(value, dict):
            yield f"{where} is no object"
            return
        hints = get_type_hints(hint)
        yield from (f"{where}.{name} is missing" for name in hints.keys() - value.keys())
        yield from (f"{where}.{name} is not documented" for name in value.keys() - hints.keys())
        for name in hints.keys() & value.keys():
            yield from _breaches(value[name], hints[name], f"{where}.{name}")
    elif hint is NoneType:
        if value is not None:
            yield f"{where} is not null"
    elif type(value) is not hint and not (hint is float and type(value) is int):
        yield f"{where} is {value!r}, not of type {hint.__name__}"
