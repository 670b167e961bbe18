# SPDX-License-Identifier: GPL-2.0-or-later
"""What an order, a schedule and a restore point say of a hook is read as it was written."""

from __future__ import annotations

import pytest

from sanctl.errors import UsageError
from sanctl.model.point_hook import HookResult, HookRun, PointHook
from sanctl.model.point_schedule import PointSchedule, Rule, ScheduledSlot
from sanctl.model.restore_point import PointOrder, RestorePoint

TOKEN = "1" * 16


@pytest.mark.parametrize("hook", [PointHook("freeze"), PointHook("a.B_9-x", 45, True)])
def test_a_hook_goes_with_an_order_and_a_schedule(hook: PointHook) -> None:
    assert PointHook.parse(str(hook)) == hook
    order = PointOrder("one", TOKEN, 1000, hook)
    assert PointOrder.parse(str(order)) == order
    schedule = PointSchedule(5, (Rule(900, 8), Rule(3600, 2)), hook)
    assert PointSchedule.parse(schedule.value) == schedule
    run = HookRun(TOKEN, "one", hook)
    assert HookRun.parse(str(run)) == run


def test_a_hook_goes_with_a_group() -> None:
    hook, group = PointHook("freeze", 20, True), ("db", "web")
    order = PointOrder("one", TOKEN, 1000, hook, group)
    assert str(order) == f"one {TOKEN} 1000 hook=freeze,20,or-crash group=db,web"
    assert PointOrder.parse(str(order)) == order
    assert order.of_member("web").hook == hook
    schedule = PointSchedule(5, (Rule(900, 8),), hook, group)
    assert schedule.value == "5 15m=8 hook=freeze,20,or-crash group=db,web"
    assert PointSchedule.parse(schedule.value) == schedule
    run = HookRun(TOKEN, "one", hook, group)
    assert HookRun.parse(str(run)) == run
    told = run.environment(device="db", node="n1", phase="before")
    assert (told["SANCTL_DEVICE"], told["SANCTL_DEVICES"]) == ("db", "db web")
    assert hook.options == "--hook freeze --hook-limit 20 --or-crash"
    assert hook._replace(or_crash=False).options == "--hook freeze --hook-limit 20"
    # The other way round is nothing that any release writes.
    assert PointOrder.parse(f"one {TOKEN} 1000 group=db,web {hook}") is None
    assert PointSchedule.parse(f"5 15m=8 group=db,web {hook}") is None
    assert HookRun.parse(f"{TOKEN} one group=db,web {hook}") is None


@pytest.mark.parametrize(
    "word",
    ["", "hook=", "hook=freeze", "freeze,30", "hook=../x,30", "hook=x,4", "hook=x,46", "hook=x,y",
     "hook=x,30,or-not", "hook=x,30,or-crash,more", "hook=-x,30"],
)  # fmt: skip
def test_what_is_no_hook_is_no_order_and_no_schedule(word: str) -> None:
    assert PointHook.parse(word) is None
    assert PointOrder.parse(f"one {TOKEN} 1000 {word}") is None
    assert PointSchedule.parse(f"5 15m=8 {word}") is None
    assert HookRun.parse(f"{TOKEN} one {word}") is None


def test_an_order_without_one_is_as_before() -> None:
    assert str(PointOrder("one", TOKEN, 1000)) == f"one {TOKEN} 1000"
    assert PointSchedule(5, (Rule(900, 8),)).value == "5 15m=8"
    assert PointSchedule.parse("5 hook=x,30") is None
    assert HookRun.parse("") is None


@pytest.mark.parametrize("name", ["", "../x", "/etc/x", "x/y", ".x", "-x", "x y", "x" * 41, "x\n"])
def test_a_name_that_is_no_file_of_the_folder(name: str) -> None:
    with pytest.raises(UsageError, match="SAN-HOOK-001"):
        PointHook.given(name, 30, or_crash=False)
    assert PointHook.given("x", 30, or_crash=True) == PointHook("x", 30, True)


@pytest.mark.parametrize("limit_s", [-1, 0, 4, 46])
def test_a_limit_that_is_none(limit_s: int) -> None:
    with pytest.raises(UsageError, match="SAN-HOOK-001"):
        PointHook.given("x", limit_s, or_crash=False)


@pytest.mark.parametrize("is_deleting", [False, True])
@pytest.mark.parametrize("slot", [None, ScheduledSlot(900, ("15m",))])
@pytest.mark.parametrize(
    ("hook", "is_application"),
    [
        (None, False),
        (HookResult("freeze"), True),
        (HookResult("freeze", "", "SAN-HOOK-005"), True),
        (HookResult("freeze", "SAN-HOOK-003", ""), False),
    ],
)
def test_a_restore_point_says_what_it_is(
    hook: HookResult | None, is_application: bool, slot: ScheduledSlot | None, is_deleting: bool
) -> None:
    point = RestorePoint(
        "web", "one", TOKEN, "a" * 32, "main", 1, 2, 3, ("n1", "n2"), is_deleting, slot, hook
    )
    assert RestorePoint.parse(point.id, point.value) == point
    assert point.is_application_consistent == is_application


@pytest.mark.parametrize(
    "word",
    ["hook=x", "hook=x/-", "hook=x/-/-/-", "x/-/-", "hook=../-/-", "hook=x/a/-", "hook=/-/-"],
)
def test_a_result_that_is_none(word: str) -> None:
    assert HookResult.parse(word) is None
    value = RestorePoint("web", "one", TOKEN, "a" * 32, "main", 1, 2, 3, ("n1",)).value
    assert RestorePoint.parse("sanctl-point.web.one", f"{value} {word}") is None


def test_what_the_program_is_told() -> None:
    told = HookRun(TOKEN, "one", PointHook("x", 20)).environment(
        device="web", node="n1", phase="before"
    )
    assert told == {
        "SANCTL_DEVICE": "web",
        "SANCTL_DEVICES": "web",
        "SANCTL_POINT": "one",
        "SANCTL_PHASE": "before",
        "SANCTL_NODE": "n1",
        "SANCTL_TOKEN": TOKEN,
        "SANCTL_LIMIT_S": "20",
    }
