# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from sanctl.drivers import link_speed
from tests.fakes.runner import FakeRunner


@pytest.mark.parametrize(
    ("speed", "known"), [("10000\n", 1_250_000_000), ("-1\n", None), ("0\n", None), ("", None)]
)
def test_the_speed_of_the_interface_with_an_address(
    speed: str, known: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def read_text(path: str) -> str:
        read.append(path)
        return speed

    monkeypatch.setattr(link_speed, "read_text", read_text)
    runner = FakeRunner()
    assert link_speed.bytes_per_s(runner, "127.0.0.1") == known
    assert (read, runner.calls) == (["/sys/class/net/lo/speed"], [])


def test_a_second_address_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_speed, "read_text", lambda path: "1000" if "/sync0/" in path else "")
    runner = FakeRunner("3: sync0    inet 192.0.2.7/24 scope global secondary sync0\n")
    assert link_speed.bytes_per_s(runner, "192.0.2.7") == 125_000_000
    assert link_speed.bytes_per_s(FakeRunner(), "192.0.2.7") is None


def test_a_read_that_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_path: str) -> str:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(link_speed, "read_text", refuses)
    assert link_speed.bytes_per_s(FakeRunner(), "127.0.0.1") is None
