# SPDX-License-Identifier: GPL-2.0-or-later
"""Who is kept out is out first, who is let in comes with what it has; refusals are logged once."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from sanctl.agents.replica import access_list, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.drivers import host_secrets, lio
from sanctl.drivers.lio_acl import Chap
from sanctl.errors import CommandError, Problem
from sanctl.model.access import HostAccess
from sanctl.system import journal, state_files

DEVICE = Device("vm1", "a" * 32, 1, "main", ("n1", "n2"), 1, ())


def test_a_refused_entry_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(journal, "write", lambda text, **_: said.append(text))
    access_list.log_refused(DEVICE, [])
    assert said == []
    for _ in range(2):
        access_list.log_refused(DEVICE, ["iqn.a: no memory"])
    assert len(said) == 1 and "iqn.a: no memory" in said[0]
    access_list.log_refused(DEVICE, [])
    access_list.log_refused(DEVICE, ["iqn.a: no memory"])
    assert len(said) == 2


def test_the_resync_service_does_not_unsay_who_is_kept_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the device by its record alone, without hosts, and publishes after each resync."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    outside: list[str] = ["app1", "web1"]
    monkeypatch.setattr(access_list, "hosts_without_secret", lambda _: tuple(outside))
    full = DEVICE._replace(cache="mode=write-through")
    assert access_list.published_field(full) == " no-secret=app1,web1"
    sync_policy.record(full)
    recorded = sync_policy.recorded_device("vm1")
    assert recorded is not None and not recorded.hosts
    assert recorded.cache == full.cache
    assert access_list.published_field(recorded) == " no-secret=app1,web1"
    outside.clear()
    assert access_list.published_field(full) == ""
    assert access_list.published_field(recorded) == ""


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Chap | str]:
    found: dict[str, Chap | str] = {}
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(host_secrets, "_KEY", str(tmp_path / "drbd.secret"))
    monkeypatch.setattr(host_secrets, "login", lambda host: found[host.name])
    (tmp_path / "drbd.secret").write_text("k" * 32 + "\n")
    return found


def test_nodes_publish_what_their_secrets_can_be_compared_by(
    tmp_path: Path, secrets: dict[str, Chap | str]
) -> None:
    assert access_list.published_field(DEVICE) == ""
    hosts = (HostAccess("db", ("iqn.x:db",), "u"), HostAccess("web", ("iqn.x:web",)))
    device = DEVICE._replace(hosts=hosts)
    secrets["db"] = Chap("u", "abcdefghijkl")
    first = access_list.published_field(device)
    assert first.startswith(" secrets=") and len(first) == len(" secrets=") + 12
    assert first == access_list.published_field(device._replace(hosts=hosts[::-1]))
    assert first == access_list.published_field(device._replace(pool="")), "the resync service"
    others = {first}
    for chap in (
        Chap("u", "abcdefghijkm"),
        Chap("v", "abcdefghijkl"),
        Chap("u", "abcdefghijkl", is_mutual=True, mutual="mnopqrstuvwx"),
    ):
        secrets["db"] = chap
        others.add(access_list.published_field(device))
    secrets["db"] = Chap("u", "abcdefghijkl")
    others.add(access_list.published_field(device._replace(uuid="b" * 32)))
    (tmp_path / "drbd.secret").write_text("another")
    others.add(access_list.published_field(device))
    assert len(others) == 6
    assert access_list.published_field(device._replace(hosts=hosts[1:])) == ""


@pytest.mark.parametrize("key", ["", None, "a folder"])
def test_without_a_key_nothing_is_published(
    tmp_path: Path, secrets: dict[str, Chap | str], key: str | None
) -> None:
    """Who reads the attribute could guess the secrets."""
    secrets["db"] = Chap("u", "abcdefghijkl")
    path = tmp_path / "drbd.secret"
    path.unlink()
    if key == "a folder":
        path.mkdir()
    elif key is not None:
        path.write_text(key)
    device = DEVICE._replace(hosts=(HostAccess("db", ("iqn.x:db",), "u"),))
    assert access_list.published_field(device) == ""


def test_nor_while_a_secret_is_missing(secrets: dict[str, Chap | str]) -> None:
    """It has a finding of its own."""
    hosts = (HostAccess("db", ("iqn.x:db",), "u"), HostAccess("web", ("iqn.x:web",), "w"))
    secrets |= {"db": Chap("u", "abcdefghijkl"), "web": "there is none"}
    assert access_list.published_field(DEVICE._replace(hosts=hosts)) == " no-secret=web"


APP, DB, WEB = "iqn.x:app", "iqn.x:db", "iqn.x:web"
CHAP = DEVICE._replace(initiators=(WEB,), hosts=(HostAccess("db", (DB,), "db"),))


class Kernel:
    """An access list in memory: it may refuse some, and lets in no one without the secret."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.entries: list[str] = []
        self.secret: Chap | str = "no such file"
        self.refused: set[str] = set()
        self.lock_is_held = self.is_letting_in = False
        self.half_there: set[str] = set()
        self.let_in_outside: list[str] = []
        self.asked: list[tuple[str, ...]] = []
        self.tried: list[tuple[str, ...]] = []
        patch.setattr(state_files, "RUNTIME", str(folder))
        patch.setattr(journal, "write", lambda *_, **__: None)
        patch.setattr(host_secrets, "login", lambda _: self.secret)
        patch.setattr(lio, "access", lambda _: tuple(map(self.word, self.entries)))
        patch.setattr(lio, "initiators", lambda _: list(self.entries))
        patch.setattr(
            lio,
            "mapped_initiators",
            lambda _: [each for each in self.entries if each not in self.half_there],
        )
        patch.setattr(lio, "has_credentials", lambda *_: True)
        self.asks_everyone = False
        patch.setattr(lio, "asks_everyone", lambda _: self.asks_everyone)
        patch.setattr(lio, "remove_initiators", self.remove)
        patch.setattr(lio, "set_initiators", self.set)

    def word(self, iqn: str) -> str:
        return next(iter(CHAP.hosts[0].words)) if iqn == DB else iqn

    def remove(self, _: str, *, keep: Collection[str]) -> None:
        self.entries = [each for each in self.entries if each in keep]

    def set(self, name: str, wanted: Iterable[str], chap: Mapping[str, Chap]) -> list[str]:
        self.asks_everyone = False
        self.remove(name, keep=(wanted := set(wanted)))
        may = {iqn for iqn in wanted if iqn not in chap or chap[iqn].secret}
        if not self.is_letting_in:
            self.let_in_outside += sorted(may - self.refused - set(self.entries))
            self.let_in_outside += sorted(self.half_there & wanted)
        self.half_there -= wanted
        self.entries = sorted({*self.entries, *(may - self.refused)})
        return [f"{iqn}: no memory" for iqn in may & self.refused]

    @contextlib.contextmanager
    def letting_in(self, new: Collection[str], *, are_refused: bool = False) -> Iterator[None]:
        if self.lock_is_held:
            raise CommandError(Problem("SAN-RES-004", "a change is under way"))
        (self.tried if are_refused else self.asked).append(tuple(new))
        self.is_letting_in = True
        try:
            yield
        finally:
            self.is_letting_in = False


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


def test_who_has_no_secret_is_not_new_with_each_monitor(kernel: Kernel) -> None:
    """What broke: all sessions of the device ended with each monitor."""
    for _ in range(3):
        access_list.update(CHAP, kernel.letting_in)
    assert kernel.asked == [(WEB,)] and kernel.entries == [WEB]
    kernel.secret = Chap("db", "s3cret")
    access_list.update(CHAP, kernel.letting_in)
    assert kernel.asked == [(WEB,), (DB,)] and kernel.entries == [DB, WEB]


def test_nor_is_who_was_refused(kernel: Kernel) -> None:
    kernel.secret, kernel.refused = Chap("db", "s3cret"), {DB}
    for _ in range(3):
        access_list.update(CHAP, kernel.letting_in)
    assert kernel.asked == [(WEB, DB)] and kernel.entries == [WEB]
    assert kernel.tried == [(DB,), (DB,)]
    kernel.refused = set()
    access_list.update(CHAP, kernel.letting_in)
    assert kernel.entries == [DB, WEB], "it is tried again all the same"
    assert kernel.let_in_outside == [], "what it has registered would not be in force"
    kernel.entries = [WEB]
    access_list.update(CHAP, kernel.letting_in)
    assert kernel.asked == [(WEB, DB), (DB,)], "it is not refused any more"


def test_who_was_refused_is_not_let_in_beside_those_who_are_new(kernel: Kernel) -> None:
    """What broke: the kernel took it after all, and it wrote past a reservation of one without."""
    kernel.secret, kernel.refused = Chap("db", "s3cret"), {DB}
    access_list.update(CHAP, kernel.letting_in)
    kernel.entries, kernel.refused = [], set()
    access_list.update(CHAP._replace(initiators=()), kernel.letting_in)
    assert kernel.asked == [(WEB, DB), (DB,)], "nobody is there whose sessions would end"
    kernel.entries = [APP]
    access_list.log_refused(CHAP, [f"{DB}: no memory"])
    access_list.update(CHAP._replace(initiators=(APP, WEB)), kernel.letting_in)
    assert kernel.asked[2:] == [(WEB,)] and kernel.entries == [APP, DB, WEB]
    assert kernel.tried == [(DB,)], "apart: no session ends for it"
    assert kernel.let_in_outside == []


def test_who_is_half_there_is_let_in_like_one_who_is_not(kernel: Kernel) -> None:
    """The kernel has dropped what it had registered."""
    kernel.entries, kernel.half_there = [APP, WEB], {WEB}
    access_list.update(DEVICE._replace(initiators=(APP, WEB, DB)), kernel.letting_in)
    assert kernel.asked == [(WEB, DB)] and kernel.entries == [APP, DB, WEB]
    assert kernel.let_in_outside == []


def test_who_is_to_be_kept_out_is_out_though_nobody_can_be_let_in(kernel: Kernel) -> None:
    """A change of reservations may be under way for as long as a replica does not answer."""
    kernel.entries, kernel.lock_is_held = [APP, WEB], True
    only = DEVICE._replace(initiators=(WEB,))
    assert access_list.update(only, kernel.letting_in) and kernel.entries == [WEB]
    kernel.entries = [APP]
    with pytest.raises(CommandError, match="SAN-RES-004"):
        access_list.update(only, kernel.letting_in)
    assert kernel.entries == []
    kernel.lock_is_held = False
    assert access_list.update(only, kernel.letting_in) and kernel.entries == [WEB]
    assert not access_list.update(only, kernel.letting_in) and kernel.asked == [(WEB,)]


def test_only_who_is_taken_off_is_kept_out_within_what_waits_for_its_command(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[list[str]] = []

    @contextlib.contextmanager
    def keeping_out(*, error: OSError | None = None) -> Iterator[None]:
        if error is not None:
            raise error
        entered.append(kernel.entries)
        yield
        entered.append(kernel.entries)

    kernel.entries = [WEB]
    access_list.update(DEVICE._replace(initiators=(APP, WEB)), kernel.letting_in, keeping_out())
    assert entered == [] and kernel.entries == [APP, WEB]
    access_list.update(DEVICE._replace(initiators=(WEB,)), kernel.letting_in, keeping_out())
    assert entered == [[APP, WEB], [WEB]]
    full = keeping_out(error=OSError(28, "No space left on device"))
    access_list.update(DEVICE, kernel.letting_in, full)
    assert kernel.entries == []


def test_nothing_that_can_fail_comes_before_that(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: str) -> list[str]:
        raise OSError(5, "EIO")

    kernel.entries = [APP]
    monkeypatch.setattr(lio, "mapped_initiators", unreadable)
    with pytest.raises(OSError):
        access_list.update(DEVICE, kernel.letting_in)
    assert kernel.entries == []


def test_without_reservations_there_is_nothing_to_wait_for(kernel: Kernel) -> None:
    kernel.entries, kernel.secret = [APP], Chap("db", "s3cret")
    assert access_list.update(CHAP) and kernel.entries == [DB, WEB]
    assert not access_list.update(CHAP)


def test_a_target_that_a_killed_process_left_asking_asks_no_more(kernel: Kernel) -> None:
    """The list is the wanted one, and on older kernels nobody without CHAP could log in."""
    kernel.entries, kernel.secret = [DB, WEB], Chap("db", "s3cret")
    kernel.asks_everyone = True
    assert not access_list.update(CHAP, kernel.letting_in)
    assert not kernel.asks_everyone and kernel.asked == []
