# SPDX-License-Identifier: GPL-2.0-or-later
"""LIO's text of reservations, and its attributes, read and written."""

from __future__ import annotations

import pytest

from sanctl.errors import CommandError
from sanctl.model.reservation import TYPES, Reservations, of_initiators
from sanctl.parse.aptpl import parse_aptpl, parse_in_force, parse_registrations
from sanctl.render.aptpl import render_aptpl

A, B = "iqn.2026-11.net.example:a", "iqn.2026-11.net.example:b"


def block(number: int, iqn: str, key: int, *, isid: str = "", holds: str = "") -> str:
    sid = f"initiator_sid={isid}\n" if isid else ""
    held = f"res_holder=1\nres_type={holds}\nres_scope=00\n" if holds else "res_holder=0\n"
    return (
        f"PR_REG_START: {number}\ninitiator_fabric=iSCSI\ninitiator_node={iqn}\n{sid}"
        f"sa_res_key={key}\n{held}res_all_tg_pt=0\nmapped_lun=0\ntarget_fabric=iSCSI\n"
        f"target_node=iqn.x:vm1\ntpgt=2\nport_rtpi=34\ntarget_lun=0\nPR_REG_END: {number}\n"
    )


def test_a_text_counts_each_initiator_once() -> None:
    text = (
        block(0, B, 7, isid="aa", holds="05") + block(1, A, 1, isid="b") + block(2, A, 2, isid="c")
    )
    assert parse_aptpl(f"{text}\0") == Reservations(((A, 2), (B, 7)), B, 5)


@pytest.mark.parametrize("text", ["No Registrations or Reservations", "\0", ""])
def test_a_text_without_registrations(text: str) -> None:
    assert parse_aptpl(text) == Reservations()


@pytest.mark.parametrize(
    "text",
    [
        block(0, A, 1)[:-20],
        block(0, A, 1) + "PR_REG_START: 1\n",
        "PR_REG_END: 0\n",
        "PR_REG_START: 0\nPR_REG_START: 1\n",
        block(0, A, 0),
        block(0, A, 1 << 64),
        block(0, "", 1),
        block(0, A, 1).replace("sa_res_key=1", "sa_res_key=x"),
        block(0, A, 1, holds="zz"),
        "something else\n",
        "res_holder=1\n",
    ],
)
def test_a_text_that_is_cut_off_or_unknown_is_refused(text: str) -> None:
    """What broke: nothing. A text that is taken for less than it is would free the device."""
    with pytest.raises(CommandError, match="SAN-RES-001"):
        parse_aptpl(text)


def test_what_is_in_force() -> None:
    registered = (
        "SPC-3 PR Registrations:\n"
        f"iSCSI Node: {A},i,0x00023d000001 Key: 0x000000000000abc1 PRgen: 0x00000001\n"
        f"iSCSI Node: {B} Key: 0x000000000000abc2 PRgen: 0x00000002\n"
    )
    holder = f"SPC-3 Reservation: iSCSI Initiator: {B}\n"
    type_ = "SPC-3 Reservation Type: Write Exclusive Access, Registrants Only\n"
    assert parse_in_force(registered, holder, type_) == Reservations(
        ((A, 0xABC1), (B, 0xABC2)), B, 5
    )
    assert parse_in_force(
        "SPC-3 PR Registrations:\nNone\n", "No SPC-3 Reservation holder\n", ""
    ) == (Reservations())
    with pytest.raises(CommandError, match="no type"):
        parse_in_force(registered, holder, "SPC-3 Reservation Type: of tomorrow\n")


def test_a_list_that_fills_the_page_is_not_known() -> None:
    line = f"iSCSI Node: {A} Key: 0x1 PRgen: 0x1\n"
    assert parse_in_force(line * 100, "", "") is None


@pytest.mark.parametrize(("sessions", "is_known"), [(32, True), (33, False)])
def test_how_many_are_listed(sessions: int, is_known: bool) -> None:
    """As docs/howto/reservations.md says."""
    registered = "SPC-3 PR Registrations:\n" + "".join(
        f"iSCSI Node: {'i' * 40}{number:02},i,0x00023d0000{number:02} "
        f"Key: 0x{number:016x} PRgen: 0x{number:08x}\n"
        for number in range(1, sessions + 1)
    )
    assert (parse_registrations(registered) is not None) == is_known


def test_all_registrants_are_equal_whoever_the_kernel_names() -> None:
    found = [
        parse_aptpl(block(0, A, 1, holds=h) + block(1, B, 2, holds=i))
        for h, i in (("07", ""), ("", "07"))
    ]
    assert found[0] == found[1] == Reservations(((A, 1), (B, 2)), A, 7)


def test_what_is_rendered_is_what_lio_writes() -> None:
    wanted = Reservations(((A, 2), (B, 7)), B, 5)
    texts = render_aptpl(wanted, iqn="iqn.x:vm1", tag=2, port_id=34)
    assert not any("initiator_sid" in text for text in texts)
    read = "".join(
        f"PR_REG_START: {number}\n{text.replace(',', chr(10))}\nPR_REG_END: {number}\n"
        for number, text in enumerate(texts)
    )
    assert parse_aptpl(read) == wanted
    assert "res_type=5," in texts[1] and "res_type" not in texts[0]


@pytest.mark.parametrize("type_", TYPES)
def test_the_kernel_reads_each_type_as_it_is_meant(type_: int) -> None:
    """What broke: of "08" it read no type, refused it, and the device was started nowhere."""
    held = of_initiators(((A, 2), (B, 7)), holder=A, type_=type_)
    (text, _) = render_aptpl(held, iqn="iqn.x:vm1", tag=10, port_id=34)
    numbers = dict(each.split("=") for each in text.split(","))
    for name in ("res_holder", "res_type", "res_scope", "res_all_tg_pt", "tpgt", "port_rtpi"):
        assert str(int(numbers[name])) == numbers[name], "C takes it for octal"
    assert int(numbers["res_type"]) == type_


def test_who_is_off_the_access_list_is_left_out() -> None:
    held = Reservations(((A, 1), (B, 2)), B, 5)
    assert held.limited_to([A]) == Reservations(((A, 1),))
    assert held.limited_to([B]) == Reservations(((B, 2),), B, 5)
    by_all = of_initiators(((A, 1), (B, 2)), holder=B, type_=7)
    assert by_all.limited_to([B]) == Reservations(((B, 2),), B, 7)
    assert by_all.limited_to([]) == Reservations()


def test_another_hosts_command_loses_no_registration_of_one_that_is_kept_out() -> None:
    kept = Reservations(((A, 1), (B, 2)), B, 5)
    # A is in and has changed its key; B has no entry yet, and holds.
    assert Reservations(((A, 9),)).with_absent(kept, [A]) == Reservations(((A, 9), (B, 2)), B, 5)
    # B is in, and has taken its registration back.
    assert Reservations(((A, 9),)).with_absent(kept, [A, B]) == Reservations(((A, 9),))
    taken = Reservations(((A, 9),), A, 1)
    assert taken.with_absent(kept, [A]) == Reservations(((A, 9), (B, 2)), A, 1)


def test_what_all_registrants_hold_one_of_them_releases_for_all() -> None:
    """What broke: it was stored as held by one that was kept out; a failover brought it back."""
    both = ((A, 1), (B, 2))
    kept = of_initiators(both, holder=A, type_=7)
    assert Reservations(((A, 1),)).with_absent(kept, [A]) == Reservations(both)
    # A has unregistered: B holds it on.
    assert Reservations().with_absent(kept, [A]) == Reservations(((B, 2),), B, 7)
    assert kept.limited_to([A]).with_absent(kept, [A]) == kept


def test_of_two_sessions_keys_the_one_that_was_set_last_counts() -> None:
    """LIO changes a key in its place in the list, with a new generation."""
    head = "SPC-3 PR Registrations:\n"
    session = "iSCSI Node: iqn.x:h,i,0x00023d00000{} Key: 0x000000000000000{} PRgen: 0x0000000{}\n"
    changed = head + session.format(1, 7, "a") + session.format(2, 5, 9)
    assert parse_registrations(changed) == [("iqn.x:h", 5), ("iqn.x:h", 7)]
    found = parse_in_force(changed, "No SPC-3 Reservation holder\n", "")
    assert found is not None and found.keys == {"iqn.x:h": 7}
    assert parse_registrations(changed * 40) is None
