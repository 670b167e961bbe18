# SPDX-License-Identifier: GPL-2.0-or-later
"""borg's log and lists: lines as borg 1.2.4 prints them."""

from __future__ import annotations

import json

import pytest

from sanctl.model.backup import BackupName
from sanctl.parse.borg import (
    Failure,
    Writer,
    backups_of,
    comment_of,
    parse_archives,
    parse_failure,
    parse_stored_bytes,
    writer_of,
)


def line(message: str, level: str = "ERROR", msgid: str = "") -> str:
    entry = {"type": "log_message", "message": message, "levelname": level, "name": "borg"}
    return json.dumps(entry | ({"msgid": msgid} if msgid else {}))


LOST = "Connection closed by remote host. Is borg working on the server?"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([line("Repository /x does not exist.", msgid="Repository.DoesNotExist")],
         Failure("Repository.DoesNotExist", "Repository /x does not exist.")),
        ([line("Remote: Host key verification failed.", "WARNING"),
          line(LOST, msgid="ConnectionClosedWithHint")],
         Failure("ConnectionClosedWithHint", LOST, "Host key verification failed.")),
        ([line("No space left on device, cleaning up partial transaction.", "WARNING"),
          line("Local Exception", msgid="Exception")],
         Failure("NoSpace", "no space left on device")),
        ([line("Local Exception", msgid="Exception"), line("Traceback\n  x\nKeyError: 1\n")],
         Failure("Exception", "Local Exception: KeyError: 1")),
        ([line("Local Exception", msgid="Exception"),
          line('Traceback\n  File "/x/borg/cache.py", line 1\nValueError: short\n\nLinux')],
         Failure("BrokenCache", "Local Exception: ValueError: short")),
        # The repository's disk, seen from the cache; and no memory for it.
        ([line("Local Exception", msgid="Exception"),
          line('Traceback\n  File "/x/borg/cache.py", line 1\n File "/x/borg/repository.py"\nE')],
         Failure("Exception", "Local Exception: E")),
        ([line("Local Exception", msgid="Exception"),
          line('Traceback\n  File "/x/borg/cache.py", line 1\nOSError: [Errno 5] I/O error')],
         Failure("Exception", "Local Exception: OSError: [Errno 5] I/O error")),
        ([line("Local Exception", msgid="Exception"),
          line('Traceback\n  File "/x/borg/cache.py", line 1\nMemoryError')],
         Failure("Exception", "Local Exception: MemoryError")),
        ([line("Include pattern 'x.img' never matched.", "WARNING")],
         Failure("", "Include pattern 'x.img' never matched.")),
        (["nice: cannot set niceness", '"text"', "[]"], Failure("", "nice: cannot set niceness")),
        ([json.dumps({"type": "progress_percent"})], Failure("", "borg ended without a word")),
        ([], Failure("", "borg ended without a word")),
    ],
)  # fmt: skip
def test_why_borg_failed(lines: list[str], wanted: Failure) -> None:
    assert parse_failure("\n".join(lines)) == wanted


def test_backups_are_the_archives_with_their_names() -> None:
    printed = json.dumps(
        {
            "archives": [
                {
                    "name": "web@two.20261125-000000",
                    "comment": comment_of(8192, "a" * 32, Writer("n1", 7)),
                },
                {"name": "web@one.20261124-000000", "comment": ""},
                {
                    "name": "web@one.20261126-000000.writing",
                    "comment": comment_of(8192, "a" * 32, Writer("n1", 7)),
                },
                {"name": "somebody-elses"},
            ]
        }
    )
    found = backups_of(parse_archives(printed), "nas")
    assert [(str(each.name), each.size_bytes) for each in found] == [
        ("web@one.20261124-000000", None),
        ("web@two.20261125-000000", 8192),
    ]
    assert found[0].repository == "nas"
    assert found[0].name == BackupName.parse("web@one.20261124-000000")


def test_who_writes_an_archive() -> None:
    for writer in (Writer("n1", 7), Writer("n1", 7, 12)):
        assert writer_of(comment_of(8192, "a" * 32, writer)) == writer
    for other in ("", "somebody's", f"sanctl size=1 device={'a' * 32}", "node=n1 begun=soon"):
        assert writer_of(other) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"archives": [1]}', '{"archives": [{}]}'])
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError):
        parse_archives(text)


def test_what_was_stored() -> None:
    text = json.dumps({"archive": {"stats": {"deduplicated_size": 1049315}}})
    assert parse_stored_bytes(text) == 1049315
    assert [parse_stored_bytes(each) for each in ("", "{}", "[]")] == [None, None, None]
