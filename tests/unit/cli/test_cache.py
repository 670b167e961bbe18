"""`sanctl device cache`, as typed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.cli.test_commands import FakeEnvironment, Run, data_of, env, run

__all__ = ["env", "run"]


Do = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def do(run: Run) -> Do:
    return lambda words: run(*words.split())


@pytest.fixture(autouse=True)
def _device(do: Do) -> None:
    assert do("device create vm1 --size 1G --cache write-through")[0] == 0


def test_it_is_there_from_birth(do: Do) -> None:
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
    assert "write-back,dirty=33554432" in do("device show vm1")[1]
    assert do("device cache vm1 none")[0] == 0
    assert "CACHE" not in do("status")[1], "nothing of it is in RAM"


def test_with_one_copy_it_is_stored_and_says_why_not(do: Do, env: FakeEnvironment) -> None:
    env.pacemaker.crash("n2")
    status, out, _ = do("device cache vm1 write-back")
    assert status == 0
    assert "n1: write-through (one copy is in sync" in out
    assert "SAN-HLT-054" in do("status")[1]


def test_a_read_cache_stays_until_it_is_taken_away(do: Do, env: FakeEnvironment) -> None:
    assert do("device cache vm1 write-through --read-cache 64M")[0] == 0
    assert do("device cache vm1 write-back")[0] == 0
    assert env.pacemaker.devices()["vm1"]["cache"] == "write-back,read=67108864"
    data = data_of(do("device show vm1 --output json")[1])
    assert data["cache"]["read_cache"] == 64 << 20
    shown = do("device show vm1")[1]
    assert "reads: 64MiB of RAM, 32MiB in use, 90 % found there" in shown.replace(" MiB", "MiB")
    env.pacemaker.has_no_ram = True
    assert do("device cache vm1 write-through --read-cache 1T")[0] == 0
    assert "SAN-HLT-058" in do("status")[1]
    assert "reads: 0 B of RAM (the node would be left too little" in do("device show vm1")[1]
    assert do("device cache vm1 none --read-cache none")[0] == 0
    assert env.pacemaker.devices()["vm1"]["cache"] == "none"
    assert do("device create vm2 --size 1G --read-cache 8M")[0] == 0
    assert env.pacemaker.devices()["vm2"]["cache"] == "none,read=8388608"


@pytest.mark.parametrize(
    "words",
    [
        "device cache vm1 write-through --dirty-limit 32M",
        "device cache vm1 write-back --dirty-limit 64K",
        "device cache vm1 writeback",
        "device cache vm1 none --read-cache 1M",
        "device cache vm1 none --read-cache lots",
        "device cache vm1",
    ],
)
def test_what_does_not_read_changes_nothing(do: Do, env: FakeEnvironment, words: str) -> None:
    before = env.pacemaker.devices()
    assert do(words)[0] == 2
    assert env.pacemaker.devices() == before


def test_a_suspect_replica_is_told_of(do: Do, env: FakeEnvironment) -> None:
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
