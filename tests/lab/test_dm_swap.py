# SPDX-License-Identifier: GPL-2.0-or-later
"""A swap of a dm table that waits for I/O too long has no effect, then or later (docs/adr/0054).

A gate that closed after its agent had reported that it did not, or opened so, would serve or fail
hosts' I/O behind the agent's back.
"""

from __future__ import annotations

import json

from sanctl.lab.harness.scenario import Scenario

# Two devices as a gate over a disk that takes five seconds for a write, which is in flight.
_ON_THE_NODE = """
import json, mmap, os, subprocess, sys, threading, time
sys.path.insert(0, os.path.realpath("/opt/sanctl/current"))
from sanctl.drivers import dm, loop
from sanctl.errors import CommandError

PATH, SECTORS, found = "/run/swap-test", 16384, {}

def dmsetup(*words):
    done = subprocess.run(["dmsetup", *words, "swap-test"], capture_output=True, text=True)
    return done.stdout.strip()

def table():
    info = dmsetup("info", "-c", "--noheadings", "-o", "suspended,tables_loaded")
    return dmsetup("table").split()[2], info

def write():
    block = mmap.mmap(-1, 4096)
    handle = os.open(dm.path("swap-test"), os.O_WRONLY | os.O_DIRECT)
    try:
        found["written"] = os.pwrite(handle, block, 0)
    except OSError as error:
        found["written"] = str(error)
    os.close(handle)

subprocess.run(["modprobe", "-a", "dm-delay", "loop"], check=True)
with open(PATH, "wb") as file:
    file.truncate(SECTORS * 512)
try:
    over = loop.attach(PATH, direct_io=False)
    dm.create("swap-test-slow", f"0 {SECTORS} delay {over} 0 0 {over} 0 5000")
    dm.create("swap-test", f"0 {SECTORS} linear {dm.path('swap-test-slow')} 0")
    writer = threading.Thread(target=write)
    writer.start()
    in_flight = f"/sys/block/{dm.kernel_name('swap-test')}/inflight"
    while not any(map(int, open(in_flight).read().split())):
        time.sleep(0.01)
    try:
        dm.swap_table("swap-test", f"0 {SECTORS} error", timeout_s=1.0)
    except CommandError as error:
        found["refused"] = str(error)
    found["late"] = table()
    writer.join()
    found["after"] = table()
    dm.swap_table("swap-test", f"0 {SECTORS} error")
    found["then"] = table()
finally:
    for name in ("swap-test", "swap-test-slow"):
        dm.remove(name)
    loop.detach(PATH)
    os.unlink(PATH)
print(json.dumps(found))
"""


def test_a_late_swap_has_no_effect(scenario: Scenario) -> None:
    node = scenario.bed.storage[0].name
    found = json.loads(scenario.bed.sh(node, "python3 -I -", stdin=_ON_THE_NODE).stdout)
    assert "SAN-DM-002" in found["refused"]
    assert "no answer within 1 s" in found["refused"]
    linear = ["linear", "Active:Live"]
    assert (found["late"], found["after"]) == (linear, linear)
    assert found["written"] == 4096
    assert found["then"] == ["error", "Active:Live"]
