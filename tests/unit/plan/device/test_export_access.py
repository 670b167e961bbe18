# SPDX-License-Identifier: GPL-2.0-or-later
"""Who may log in to an export follows the hosts: CHAP, IQNs, renamed and deleted ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.access import HostAccess
from sanctl.plan.device.export_access import (
    AccessNow,
    CibHosts,
    ExportAccess,
    access_now,
    note_text,
    read_cib_hosts,
    read_note,
)

A, B, C = (f"iqn.2026-11.net.example:{each}" for each in "abc")
BK1 = HostAccess("bk1", (A, B))
NOTED = ExportAccess((C,), (BK1,))


def cib(*hosts: HostAccess, unreadable: str = "") -> CibHosts:
    return CibHosts({host.name: host for host in hosts}, frozenset(unreadable.split()))


def both(access: ExportAccess, gone: tuple[str, ...]) -> AccessNow:
    """Return that the note is to say who is let in."""
    return AccessNow(access, access, gone)


def test_hosts_are_read_and_groups_are_none() -> None:
    found = read_cib_hosts(
        {
            "sanctl-host.bk1": f"{A},{B}",
            "sanctl-host.bk2": f"{C}/chap=u/mutual",
            "sanctl-host.later": f"{C}/kerberos",
            "sanctl-host.@web": "hosts=bk1",
            "sanctl-hostile": "x",
        },
        "sanctl-host.",
    )
    assert found == cib(BK1, HostAccess("bk2", (C,), "u", is_mutual=True), unreadable="later")


@pytest.mark.parametrize(
    "access",
    [
        NOTED,
        ExportAccess(
            (), (HostAccess("bk2", (C,), "u", is_mutual=True), HostAccess("x", (A,), "u"))
        ),
        ExportAccess((A, B), ()),
        ExportAccess((A,), (), (B, C)),
        ExportAccess((), (), (B,)),
    ],
)
def test_a_note_is_read_as_it_is_written(access: ExportAccess) -> None:
    assert read_note(note_text(access), ()) == access


@pytest.mark.parametrize(
    "text", ["", "initiator ", "host bk1", "host bk1=a/kerberos", "later x", "asked "]
)
def test_without_a_note_nobody_new_is_let_in(text: str) -> None:
    """And who is asked for CHAP, or has half an entry, not as one who is not."""
    words = {A, f"{B}+chap=u+mutual", f"{C}+chap=?"}
    assert read_note(text, words) == ExportAccess((A,), (), (B, C))


@pytest.mark.parametrize(
    ("hosts", "wanted"),
    [
        (cib(BK1), AccessNow(NOTED, NOTED, ())),
        # CHAP; another IQN.
        (
            cib(BK1._replace(chap_user="u")),
            both(ExportAccess((C,), (BK1._replace(chap_user="u"),)), ()),
        ),
        (
            cib(BK1._replace(iqns=(A,))),
            both(ExportAccess((C,), (BK1._replace(iqns=(A,)),)), ()),
        ),
        # Renamed: just its IQNs. Another host with some of them is another one.
        (
            cib(BK1._replace(name="bk2")),
            both(ExportAccess((C,), (BK1._replace(name="bk2"),)), ()),
        ),
        (cib(HostAccess("bk2", (A,))), both(ExportAccess((C,), ()), ("bk1",))),
        (cib(), both(ExportAccess((C,), ()), ("bk1",))),
        # What it may be now is not known; it gets in again once it can be read.
        # C may be that host's by now, and need CHAP.
        (cib(unreadable="bk1"), AccessNow(NOTED, ExportAccess((), ()), ())),
        # An IQN that has become a host's: it alone, and with CHAP.
        (
            cib(BK1, HostAccess("bk2", (C, "iqn.more"), "u")),
            AccessNow(
                ExportAccess((), (BK1,), (C,)),
                ExportAccess((), (BK1, HostAccess("bk2", (C,), "u"))),
                (),
            ),
        ),
        (
            cib(BK1._replace(iqns=(A, B, C))),
            AccessNow(
                ExportAccess((C,), (BK1._replace(iqns=(A, B, C)),)),
                ExportAccess((), (BK1._replace(iqns=(A, B, C)),)),
                (),
            ),
        ),
    ],
)
def test_an_export_follows_the_hosts(hosts: CibHosts, wanted: AccessNow) -> None:
    assert access_now(NOTED, hosts) == wanted


ASKED = ExportAccess((), (), (A, C))


@pytest.mark.parametrize(
    ("hosts", "wanted"),
    [
        # Its host, by whatever name, and what that has to do now.
        (
            cib(HostAccess("bk2", (A, B), "u"), HostAccess("bk3", (C,))),
            AccessNow(
                ASKED,
                ExportAccess((), (HostAccess("bk2", (A,), "u"), HostAccess("bk3", (C,)))),
                (),
            ),
        ),
        # Without a host nobody would be asked: it is let in no more, and not by a later one.
        (
            cib(HostAccess("bk2", (A,), "u")),
            AccessNow(
                ExportAccess((), (), (A,)),
                ExportAccess((), (HostAccess("bk2", (A,), "u"),)),
                (f"of {C}",),
            ),
        ),
        (cib(), AccessNow(ExportAccess((), ()), ExportAccess((), ()), (f"of {A}", f"of {C}"))),
        # Whose it is cannot be read: it gets in again once that can.
        (cib(unreadable="bk2"), AccessNow(ASKED, ExportAccess((), ()), ())),
    ],
)
def test_who_was_asked_for_chap_is_let_in_as_a_hosts_alone(
    hosts: CibHosts, wanted: AccessNow
) -> None:
    assert access_now(ASKED, hosts) == wanted


IQNS = st.lists(st.sampled_from([A, B, C]), min_size=1, unique=True).map(tuple)
HOST = st.builds(
    HostAccess,
    st.sampled_from(["bk1", "bk2", "bk3"]),
    IQNS,
    st.sampled_from(["", "u"]),
)
HOSTS = st.lists(HOST, max_size=3, unique_by=lambda host: host.name)


@given(
    st.lists(st.sampled_from([A, B, C]), unique=True),
    HOSTS,
    HOSTS,
    st.sets(st.sampled_from(["bk1", "bk4"])),
    st.integers(0, 3),
)
def test_nobody_gets_in_without_what_the_host_has_to_do(
    initiators: list[str],
    noted: list[HostAccess],
    now: list[HostAccess],
    unreadable: set[str],
    asked: int,
) -> None:
    hosts = CibHosts(
        {host.name: host for host in now if host.name not in unreadable}, frozenset(unreadable)
    )
    free = initiators[asked:]
    noted_access = ExportAccess(tuple(free), tuple(noted), tuple(initiators[:asked]))
    found = access_now(noted_access, hosts)
    owned = {iqn: host for host in hosts.hosts.values() for iqn in host.iqns}
    assert owned.keys().isdisjoint(found.access.initiators)
    assert {*found.access.initiators} <= {*free}
    # Who is asked now is not let in unasked by the next monitor, whatever hosts there are then.
    later = access_now(found.noted, cib()).access
    assert {iqn for host in found.access.hosts if host.chap_user for iqn in host.iqns}.isdisjoint(
        later.initiators
    )
    for host in found.access.hosts:
        known = hosts.hosts[host.name]
        assert host._replace(iqns=()) == known._replace(iqns=())
        assert {*host.iqns} <= {*known.iqns}
    # Once more it is the same, and a host that is gone does not come back by its name.
    again = access_now(found.noted, hosts)
    assert again.access == found.access and not again.gone
