# SPDX-License-Identifier: GPL-2.0-or-later
"""What a node knows by itself of hosts at a device that awaits its sites. Not known is no."""

from __future__ import annotations

import pytest

from sanctl.model.admission import (
    ASKING,
    held_word,
    parse_held,
    parse_run,
    run_word,
    says_of_hosts,
    without_other_runs,
)
from sanctl.model.packed_states import pack
from sanctl.plan.site.admission import Evidence, is_let_in, is_said_by_another, run_of

RUN = "0123456789ab-77"
NOTHING = Evidence(RUN, "", "", serves_hosts=False)


@pytest.mark.parametrize(
    ("evidence", "wanted"),
    [
        (NOTHING, False),
        (NOTHING._replace(noted=RUN), True),
        # Of an earlier run of the cluster software, or of an earlier boot.
        (NOTHING._replace(noted="0123456789ab-76"), False),
        (NOTHING._replace(noted="ffff456789ab-77"), False),
        (NOTHING._replace(released=f"ffff456789ab-77 {RUN}"), True),
        (NOTHING._replace(released="ffff456789ab-77 0123456789ab-7"), False),
        # Which run this is, is not known: no note and no order is of it.
        (Evidence("", "", "", serves_hosts=False), False),
        (Evidence("", RUN, RUN, serves_hosts=False), False),
        (NOTHING._replace(serves_hosts=True), True),
    ],
)
def test_a_node_knows_by_a_note_an_order_or_its_own_service(
    evidence: Evidence, *, wanted: bool
) -> None:
    assert is_let_in(evidence) is wanted


def test_another_node_passes_it_on() -> None:
    said = pack({"web": f"disk=UpToDate let-in={RUN} role=Primary", "db": "disk=UpToDate"})
    assert is_said_by_another("web", [pack({}), said])
    assert not is_said_by_another("web", [])
    for other in ("", pack({}), "?", pack({"web": f"held={RUN}:asking"})):
        assert not is_said_by_another("web", [other]), other
    assert not is_said_by_another("db", [said])
    # In which run it speaks it does not say, or does not know.
    for word in ("let-in=1", "let-in=?", "let-in=", "let-in", f"xlet-in={RUN}", f"let-in={RUN}0x"):
        assert not is_said_by_another("web", [pack({"web": word})]), word


def test_a_run_is_named_by_boot_and_start() -> None:
    boot = "01234567-89ab-4def-8123-456789abcdef\n"
    assert run_of(boot, "77") == RUN
    for boot_id, start in ((boot, ""), ("", "77"), ("0123", "77"), (boot, "x 1")):
        assert run_of(boot_id, start) == ""


def test_what_is_published_is_read() -> None:
    assert parse_held(held_word(RUN, "SAN-SITE-005")) == (RUN, "SAN-SITE-005")
    assert parse_held(held_word("", "")) == ("", ASKING)
    for other in ("", RUN, ":asking"):
        assert parse_held(other) is None
    assert parse_run(run_word(RUN)) == RUN
    assert parse_run(run_word("")) == "" and parse_run(None) is None


def test_words_of_another_run_are_left_out() -> None:
    said = f"disk=UpToDate let-in={RUN} role=Primary"
    assert says_of_hosts(said) and says_of_hosts("held=?:asking") and not says_of_hosts("disk=Down")
    assert without_other_runs(said, RUN) == said
    for other in ("0123456789ab-7", ""):
        assert without_other_runs(said, other) == "disk=UpToDate role=Primary", other
    assert without_other_runs(f"held={RUN}:asking a=b", "0123456789ab-78") == "a=b"
    assert without_other_runs("held=?:asking", "") == "held=?:asking"
    assert without_other_runs("let-in held", RUN) == "let-in held", "no such words"
