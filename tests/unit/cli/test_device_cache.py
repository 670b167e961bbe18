# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl device cache`, as typed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sanctl.model.crm_mon import Role
from tests.unit.cli.test_commands import FakeEnvironment, Run, data_of, env, run

__all__ = ["env", "run"]


Do = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def do(run: Run) -> Do:
    return lambda words: run(*words.split())


@pytest.fixture(autouse=True)
def _device(do: Do) -> None:
    assert do("device create vm1 --size 1G --cache write-through")[0] == 0


def test_it_is_there_from_creation(do: Do) -> None:
    data = data_of(do("device show vm1 --output json")[1])
    assert data["cache"] == {"mode": "write-through", "dirty_limit": None, "read_cache": 0}
    assert [replica["cache"]["mode"] for replica in data["replicas"]] == ["write-through"] * 2


def test_it_changes_and_says_what_each_replica_is_in(do: Do, env: FakeEnvironment) -> None:
    status, out, _ = do("device cache vm1 write-back --dirty-limit 32M")
    assert status == 0
    assert "n1: write-back, 4MiB dirty, 1 s to flush" in out.replace(" MiB", "MiB")
    assert env.pacemaker.devices()["vm1"]["cache"] == "write-back,dirty=33554432"
    told = " ".join(do("status")[1].split()).replace("4 MiB", "4MiB")
    assert "CACHE NODE NOW device vm1 n1 write-back, 4MiB dirty, 1 s to flush" in told
    assert "nothing to do" in do("device cache vm1 write-back --dirty-limit 32M")[1]
    assert "write-back, at most 32 MiB dirty\n" in do("device show vm1")[1]
    assert do("device cache vm1 none")[0] == 0
    assert "CACHE" not in do("status")[1], "nothing of it is in RAM"


def test_a_limit_stays_until_write_back_is_left(do: Do, env: FakeEnvironment) -> None:
    def stored() -> str:
        return env.pacemaker.devices()["vm1"]["cache"]

    assert do("device cache vm1 write-back --dirty-limit 32M")[0] == 0
    assert do("device cache vm1 write-back --read-cache 64M")[0] == 0
    assert stored() == "write-back,dirty=33554432,read=67108864"
    assert "nothing to do" in do("device cache vm1 write-back")[1]
    assert do("device cache vm1 --read-cache none")[0] == 0
    assert stored() == "write-back,dirty=33554432"
    assert do("device cache vm1 --dirty-limit 16M")[0] == 0
    assert stored() == "write-back,dirty=16777216"
    assert do("device cache vm1 none")[0] == 0
    assert do("device cache vm1 write-back")[0] == 0
    assert stored() == "write-back"


def test_a_limit_alone_is_waited_for(do: Do, env: FakeEnvironment) -> None:
    assert do("device cache vm1 write-back")[0] == 0
    env.pacemaker.is_frozen = True
    status, _, err = do("device cache vm1 --dirty-limit 32M --timeout 5")
    assert status == 7
    assert "n1: write-back, 4 MiB dirty, 1 s to flush, not yet at most 32 MiB dirty" in err
    env.pacemaker.is_frozen = False
    assert do("device cache vm1 --dirty-limit 32M")[0] == 0


def test_with_one_replica_it_is_stored_and_says_why_not(do: Do, env: FakeEnvironment) -> None:
    env.pacemaker.crash("n2")
    status, out, _ = do("device cache vm1 write-back")
    assert status == 0
    assert "cache policy write-back, at most 64 MiB dirty, stored after" in out
    assert "not in effect yet: it is once two replicas are in sync\n" in out
    assert "n1: write-through (one replica is in sync" in out
    found = [
        each
        for each in data_of(do("status --output json")[1])["findings"]
        if each["code"] == "SAN-HLT-054"
    ]
    assert [each["do"] for each in found] == [
        "the replica goes to write-back by itself once two replicas are in sync"
    ]
    assert not data_of(do("device cache vm1 --output json")[1])["in_effect"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (("write-back limit=67108864", "write-back limit=67108864"), None),
        (
            ("write-through cache-why=comparing", "write-through cache-why=comparing"),
            "not in effect yet: it is once the replicas have been compared",
        ),
        (
            ("write-through cache-why=one-copy", "write-through cache-why=no-flush"),
            "not in effect yet: it is once the reason has passed",
        ),
        (
            ("write-back limit=67108864", "write-through cache-why=suspect"),
            "not in effect yet on n2: it is once the replica has been fully resynced",
        ),
        (("?", "?"), "not in effect yet: it is once the reason has passed"),
    ],
)
def test_it_says_what_write_back_waits_for(
    do: Do, env: FakeEnvironment, said: tuple[str, str], told: str | None
) -> None:
    assert do("device cache vm1 write-back")[0] == 0
    env.pacemaker.is_frozen = True
    for node, words in zip(("n1", "n2"), said, strict=True):
        env.pacemaker.attribute(node, "sanctl-vm1", f"disk=UpToDate cache={words}")
    lines = do("device cache vm1")[1].splitlines()
    assert len(lines) == (3 if told is None else 4)
    assert told is None or lines[1] == f"  {told}"


def test_a_replica_that_has_to_be_buffered_is_in_write_through(
    do: Do, env: FakeEnvironment
) -> None:
    env.pacemaker.is_frozen = True
    said = {"n1": "none", "n2": "write-through cache-wanted=none cache-why=blocks"}
    for node, words in said.items():
        env.pacemaker.attribute(node, "sanctl-vm1", f"disk=UpToDate cache={words}")
    assert do("device cache vm1 none --timeout 5")[0] == 0
    assert "n2: write-through (its data file takes no direct I/O" in do("device cache vm1")[1]
    found = [
        each
        for each in data_of(do("status --output json")[1])["findings"]
        if each["code"] == "SAN-HLT-054"
    ]
    assert [each["severity"] for each in found] == ["note"]
    assert "'sanctl device cache vm1 write-through'" in found[0]["do"]


def test_a_device_that_runs_nowhere(do: Do, env: FakeEnvironment) -> None:
    for node in ("n1", "n2"):
        env.pacemaker.crash(node)
    env.pacemaker.is_frozen = True
    assert do("device cache vm1 write-back")[0] == 0
    assert "not in effect yet: it is once its replicas run" in do("device cache vm1")[1]


def test_a_device_of_one_replica_is_never_in_write_back(do: Do) -> None:
    status, out, _ = do("device create vm2 --size 1G --replicas 1 --cache write-back")
    assert status == 0
    assert "not in effect: write-back needs two replicas, and the device has one" in out
    told = do("device cache vm2 write-back --dirty-limit 32M")
    assert told[0] == 0
    assert "'sanctl device replicas vm2 2' makes the second" in told[1]
    told_of = do("status")[1]
    assert "SAN-HLT-054" in told_of and "by itself" not in told_of
    assert "'sanctl device replicas vm2 2'" in told_of


def test_a_reason_of_before_is_not_reported(do: Do, env: FakeEnvironment) -> None:
    """Seen after a change: a replica in write-back instead of write-back, being changed."""
    assert do("device cache vm1 write-back")[0] == 0
    env.pacemaker.is_frozen = True
    env.pacemaker.attribute(
        "n2",
        "sanctl-vm1",
        "disk=UpToDate connection=Connected peer-disk=UpToDate role=Secondary size=1073741824"
        " cache=write-back limit=67108864 cache-wanted=write-through cache-why=changing",
    )
    assert "SAN-HLT-054" not in do("status")[1]
    assert "n2: write-back\n" in do("device show vm1")[1]
    data = data_of(do("device show vm1 --output json")[1])
    assert data["replicas"][1]["cache"]["reason"] is None


@pytest.mark.parametrize(
    "command",
    [
        "device cache vm1 write-back",
        "device resize vm1 2G",
        "device sync vm1 --priority 7",
        "target allow vm1 iqn.2026-11.net.example:host1",
    ],
)
def test_it_returns_when_pacemaker_shows_again_which_node_serves(
    do: Do, env: FakeEnvironment, command: str
) -> None:
    """Pacemaker notes a reload as a start, and promotes what was promoted once more."""

    def reload() -> None:
        env.pacemaker.tick()
        env.pacemaker.roles["vm1", "n1"] = Role.UNPROMOTED

    env.pacemaker.after_patch = reload
    data = data_of(do(f"{command} --output json")[1])
    shown = data_of(do("device show vm1 --output json")[1])
    assert (shown["state"], shown["active_node"]) == ("ok", "n1")
    assert shown["target"] == "iqn.2026-11.net.example:lab.vm1"
    if command.startswith("device cache"):
        assert data["replicas"][0]["role"] == "Promoted"
        assert shown.pop("schedule") is None and shown.pop("follows") is None
        assert shown == {key: data[key] for key in shown}


def test_without_a_mode_it_shows_what_there_is(do: Do, env: FakeEnvironment) -> None:
    before, recorded = env.pacemaker.devices(), len(env.records)
    status, out, _ = do("device cache vm1")
    assert (status, env.pacemaker.devices(), len(env.records)) == (0, before, recorded)
    assert out.splitlines() == [
        "device vm1: cache policy write-through",
        "  n1: write-through",
        "  n2: write-through",
    ]
    data = data_of(do("device cache vm1 --output json")[1])
    assert (data["changed"], data["in_effect"], data["duration_s"]) == (False, True, 0.0)


def test_a_node_that_allows_less_is_reported(do: Do, env: FakeEnvironment) -> None:
    assert do("device cache vm1 write-back --dirty-limit 8G")[0] == 0
    env.pacemaker.is_frozen = True
    env.pacemaker.attribute(
        "n1",
        "sanctl-vm1",
        "disk=UpToDate connection=Connected peer-disk=UpToDate role=Primary size=1073741824"
        " cache=write-back limit=8589934592 node-limit=155189248 dirty=4194304",
    )
    assert "nothing to do" in do("device cache vm1 write-back")[1], "it has got there"
    shown = do("device show vm1")[1]
    assert "write-back, at most 8 GiB dirty\n" in shown
    assert "n1: write-back, 4 MiB dirty, its node allows 148 MiB in all\n" in shown
    data = data_of(do("status --output json")[1])
    replicas = data["devices"][0]["replicas"]
    assert [each["cache"]["node_limit"] for each in replicas] == [155189248, None]
    found = [each for each in data["findings"] if each["code"] == "SAN-HLT-059"]
    assert [each["subject"] for each in found] == ["node n1"]
    assert "only 148 MiB" in found[0]["what"] and "8 GiB" in found[0]["what"]


def test_a_read_cache_stays_until_it_is_taken_away(do: Do, env: FakeEnvironment) -> None:
    assert do("device cache vm1 write-through --read-cache 64M")[0] == 0
    assert do("device cache vm1 write-back")[0] == 0
    assert env.pacemaker.devices()["vm1"]["cache"] == "write-back,read=67108864"
    data = data_of(do("device show vm1 --output json")[1])
    assert data["cache"]["read_cache"] == 64 << 20
    shown = do("device show vm1")[1]
    assert "write-back, at most 64 MiB dirty, read cache 64 MiB\n" in shown
    assert "reads: 64MiB of RAM, 32MiB in use, 90 % found there" in shown.replace(" MiB", "MiB")
    env.pacemaker.has_no_ram = True
    assert do("device cache vm1 write-through --read-cache 1G")[0] == 0
    assert "SAN-HLT-058" in do("status")[1]
    assert "reads: 0 B of RAM (the node would be left too little" in do("device show vm1")[1]
    assert do("device cache vm1 none --read-cache none")[0] == 0
    assert env.pacemaker.devices()["vm1"]["cache"] == "none"
    assert do("device create vm2 --size 1G --read-cache 8M")[0] == 0
    assert env.pacemaker.devices()["vm2"]["cache"] == "none,read=8388608"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "device cache vm1 write-through --dirty-limit 32M",
            "SAN-CACHE-005: --dirty-limit does not go with write-through",
        ),
        (
            "device cache vm1 write-back --dirty-limit 64K",
            "SAN-CACHE-005: --dirty-limit 64K is too small: the minimum is 1 MiB",
        ),
        (
            "device cache vm1 write-back --dirty-limit 0",
            "--dirty-limit 0 is too small: the minimum is 1 MiB",
        ),
        (
            "device cache vm1 --dirty-limit 100",
            "--dirty-limit 100 is too small: the minimum is 1 MiB",
        ),
        ("device cache vm1 --dirty-limit 1048577", "--dirty-limit: size of 1048577 bytes is not"),
        ("device cache vm1 writeback", "'writeback' is not one of"),
        (
            "device cache vm1 none --read-cache 1K",
            "--read-cache 1K is too small: the minimum is 4 MiB",
        ),
        ("device cache vm1 none --read-cache 0", "'--read-cache none' removes the read cache"),
        ("device cache vm1 none --read-cache off", "'--read-cache none' removes the read cache"),
        ("device cache vm1 none --read-cache lots", "--read-cache: size 'lots' is not a size"),
        ("device create vm2 --size 1G --dirty-limit 32M", "--dirty-limit does not go with none"),
        (
            "device create vm2 --size 1G --read-cache 2G",
            "SAN-CACHE-011: a read cache of 2 GiB is larger than device vm2, which has 1 GiB",
        ),
    ],
)
def test_what_does_not_read_changes_nothing(
    do: Do, env: FakeEnvironment, words: str, told: str
) -> None:
    before = env.pacemaker.devices()
    status, _, err = do(words)
    assert (status, env.pacemaker.devices()) == (2, before)
    assert told in err


def test_all_that_does_not_read_is_reported_at_once(do: Do) -> None:
    err = do("device cache vm1 none --dirty-limit 1K --read-cache off")[2]
    assert [line.split(":")[0] for line in err.splitlines()] == [
        "SAN-CACHE-005",
        "SAN-CACHE-005",
        "SAN-CACHE-011",
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--read-cache 2G", "a read cache of 2 GiB is larger than device vm1, which has 1 GiB"),
        ("--dirty-limit 32M", "device vm1 is in write-through: only write-back has a dirty limit"),
    ],
)
def test_what_makes_no_sense_for_a_device_is_refused(
    do: Do, env: FakeEnvironment, words: str, told: str
) -> None:
    before = env.pacemaker.devices()
    status, _, err = do(f"device cache vm1 {words}")
    assert (status, env.pacemaker.devices()) == (4, before)
    assert told in err


def test_a_limit_from_creation(do: Do, env: FakeEnvironment) -> None:
    assert do("device create vm2 --size 1G --cache write-back --dirty-limit 32M")[0] == 0
    assert env.pacemaker.devices()["vm2"]["cache"] == "write-back,dirty=33554432"


def test_a_suspect_replica_is_reported(do: Do, env: FakeEnvironment) -> None:
    env.pacemaker.is_frozen = True
    env.pacemaker.attribute(
        "n2",
        "sanctl-vm1",
        "disk=Consistent connection=StandAlone role=Secondary cache=write-through suspect=1"
        " cache-why=suspect",
    )
    out = do("status")[1]
    assert "SAN-HLT-057" in out and "SAN-HLT-054" not in out


def test_a_long_flush_is_a_warning(do: Do, env: FakeEnvironment) -> None:
    env.pacemaker.is_frozen = True
    env.pacemaker.attribute(
        "n2", "sanctl-vm1", "disk=UpToDate cache=write-back dirty=67108864 flush-s=40"
    )
    assert "SAN-HLT-055" in do("status")[1]


def test_what_is_still_to_be_flushed_after_a_resync_is_shown(do: Do, env: FakeEnvironment) -> None:
    """Drops and drains wait for that."""
    env.pacemaker.is_frozen = True
    state = "connection=Connected replication=Established peer-disk=UpToDate role=Secondary"
    env.pacemaker.attribute("n2", "sanctl-vm1", f"disk=UpToDate {state} unflushed=1")
    shown = do("device show vm1")[1]
    assert "UpToDate, not flushed after its resync yet" in shown
    replicas = data_of(do("device show vm1 --output json")[1])["replicas"]
    assert [each["unflushed"] for each in replicas] == [False, True]
    # Of one that is being filled that goes without saying.
    env.pacemaker.attribute("n2", "sanctl-vm1", "disk=Inconsistent unflushed=1")
    assert "not flushed" not in do("device show vm1")[1]
