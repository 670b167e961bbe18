# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host writes is not interpreted on a storage node, whatever superblock it is.

A host may choose the UUID and the label of a pool's filesystem, or write what mdadm, LVM, bcache or
btrfs assemble by themselves. Replicas start over such content, devices move onto it: links under
/dev/disk stay where they were, and nothing but DRBD and device-mapper holds a device file.
"""

from __future__ import annotations

import base64
import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.drivers import bcache_superblock
from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import superblocks

SIZE_BYTES = 64 << 20
NODES = ("n1", "n2")
OTHER = {"n1": "n2", "n2": "n1"}
GROUP = "hostvg"
DEVICES = ("hostext4", "hostmd", "hostlvm", "hostbcache", "hostbtrfs")
ASSEMBLED = "/run/sanctl-lab-assembled"

#: Of the packages bcache-tools and mdadm, which a storage node has no need of and may have.
_RULES = {
    "64-md-raid-assembly.rules": """\
SUBSYSTEM!="block", GOTO="md_inc_end"
ENV{SYSTEMD_READY}=="0", GOTO="md_inc_end"
ENV{ID_FS_TYPE}=="linux_raid_member", GOTO="md_inc"
GOTO="md_inc_end"
LABEL="md_inc"
ACTION=="add|change", IMPORT{program}="/usr/lib/udev/mdadm --incremental --export $devnode"
LABEL="md_inc_end"
""",
    "69-bcache.rules": """\
SUBSYSTEM!="block", GOTO="bcache_end"
ACTION=="remove", GOTO="bcache_end"
ENV{DM_UDEV_DISABLE_OTHER_RULES_FLAG}=="1", GOTO="bcache_end"
KERNEL=="fd*|sr*", GOTO="bcache_end"
ENV{ID_FS_TYPE}=="bcache", GOTO="bcache_backing_found"
ENV{ID_FS_TYPE}=="?*", GOTO="bcache_end"
IMPORT{program}="probe-bcache -o udev $tempnode"
ENV{ID_FS_TYPE}!="bcache", GOTO="bcache_end"
LABEL="bcache_backing_found"
RUN{builtin}+="kmod load bcache"
RUN+="bcache-register $tempnode"
LABEL="bcache_end"
""",
}
#: What these rules call: mdadm is only noted, bcache is registered with the kernel as they do.
_PROGRAMS = {
    "mdadm": f'#!/bin/sh\necho "mdadm $*" >>{ASSEMBLED}\n',
    "probe-bcache": (
        "#!/bin/sh\n"
        'magic=$(dd if="$3" bs=1 skip=4120 count=4 2>/dev/null | od -An -tx1 | tr -d " ")\n'
        '[ "$magic" = c68573f6 ] && echo ID_FS_TYPE=bcache; exit 0\n'
    ),
    "bcache-register": (
        f'#!/bin/sh\necho "bcache-register $*" >>{ASSEMBLED}\n'
        '/sbin/modprobe bcache; echo "$1" >/sys/fs/bcache/register_quiet\n'
    ),
}
_LOOK = r"""
import glob, json, os, re, subprocess

def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True).stdout

run("udevadm", "settle", "--timeout=60")
block = {name: os.path.realpath(f"/sys/block/{name}") for name in os.listdir("/sys/block")}
ours, foreign = {}, {}
for name, folder in block.items():
    try:
        text = open(f"{folder}/loop/backing_file").read()
    except OSError:
        text = ""
    try:
        mapped = open(f"{folder}/dm/name").read()
    except OSError:
        mapped = ""
    is_file = "/devices/" in text or text.startswith("/run/sanctl/")
    if is_file or name.startswith("drbd") or mapped.startswith("sanctl-"):
        ours[name] = folder
    elif text:
        foreign[name] = text.strip()
links = {}
for link in glob.glob("/dev/disk/by-*/*"):
    links[link] = os.path.basename(os.path.realpath(link))
holders = {}
for name, folder in ours.items():
    for holder in os.listdir(f"{folder}/holders"):
        if holder not in ours:
            holders.setdefault(name, []).append(holder)
print(json.dumps({
    "ours": sorted(ours),
    "links": links,
    "links to ours": {link: name for link, name in links.items() if name in ours},
    "read by udev": {
        name: found for name in ours
        if (found := re.findall(r"ID_FS_\w+=.*", run("udevadm", "info", f"/dev/{name}")))
    },
    "watched": sorted(set(ours) & {
        os.path.basename(os.path.realpath("/dev/block/" + number))
        for each in glob.glob("/run/udev/watch/b*:*")
        for number in [os.path.basename(each)[1:]]
    }),
    "holders": holders,
    "bcache": sorted(name for name in block if name.startswith("bcache")),
    "md": sorted(name for name in block if name.startswith("md")),
    "groups": run("vgs", "--noheadings", "-o", "name").split(),
    "volumes of ours": [
        name for name in run("pvs", "--all", "--noheadings", "-o", "name").split()
        if os.path.basename(os.path.realpath(name)) in ours
    ],
    "mapped": [line.split()[0] for line in run("dmsetup", "ls").splitlines() if line.strip()],
    "multipath": [
        name for name in ours
        if subprocess.run(["multipath", "-c", f"/dev/{name}"], capture_output=True).returncode == 0
    ],
    "assembled": open("%s").read().split("\n") if os.path.exists("%s") else [],
    "foreign": foreign,
}))
""" % (ASSEMBLED, ASSEMBLED)  # noqa: UP031 - braces of the script


def look(bed: LabSession, node: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bed.sh(node, "python3 -", stdin=_LOOK, timeout_s=180).stdout)
    return found


def assert_not_interpreted(bed: LabSession, node: str, before: dict[str, Any]) -> None:
    """Check that a node has made nothing of what lies on its devices."""
    found = look(bed, node)
    assert len([name for name in found["ours"] if name.startswith("loop")]) >= 2 * len(DEVICES)
    empty = ("links to ours", "volumes of ours", "read by udev", "watched", "holders", "md",
             "multipath", "assembled")  # fmt: skip
    assert {key: found[key] for key in empty if found[key]} == {}
    for same in ("bcache", "groups"):
        assert found[same] == before[same], same
    assert not [name for name in found["mapped"] if name.startswith(GROUP)]
    # by-loop-*: loop devices of others. Two disks may have one link by right: not always the same.
    steady = {link for link in before["links"] if "by-loop" not in link}
    assert steady - set(found["links"]) == set()


@contextlib.contextmanager
def assembling(bed: LabSession, node: str) -> Iterator[None]:
    """Have a node's udev call what assembles arrays and caches."""
    rules = {f"/run/udev/rules.d/{name}": text for name, text in _RULES.items()}
    programs = {f"/usr/lib/udev/{name}": text for name, text in _PROGRAMS.items()}
    write = (
        "import json, os, sys\n"
        "os.makedirs('/run/udev/rules.d', exist_ok=True)\n"
        "for path, text in json.loads(sys.argv[1]).items():\n"
        "    open(path, 'w').write(text); os.chmod(path, 0o755)\n"
    )
    files = json.dumps({**rules, **programs})
    bed.sh(node, f"python3 - {_quoted(files)} && udevadm control --reload", stdin=write)
    try:
        yield
    finally:
        names = " ".join([*rules, *programs, ASSEMBLED])
        bed.sh(node, f"rm -f {names}; udevadm control --reload")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def write(host: Initiator, path: str, content: bytes) -> None:
    """Have the host write a device's beginning."""
    host.bed.sh(
        host.name,
        f"base64 -d | dd of={path} bs=1M iflag=fullblock oflag=direct status=none",
        stdin=base64.b64encode(content).decode(),
        timeout_s=60,
    )


@pytest.fixture
def devices(scenario: Scenario) -> Iterator[dict[str, str]]:
    """Return the host's path by device."""
    paths = {}
    try:
        for name in DEVICES:
            target = scenario.create(name, "64M", prefer="n1", nodes=NODES)
            paths[name] = scenario.host.login(target, scenario.portals(NODES))
        yield paths
    finally:
        for name in paths:
            scenario.delete(name)


def await_in_sync(bed: LabSession) -> None:
    for name in DEVICES:
        wait_for(
            f"both replicas of {name} in sync",
            lambda name=name: collect.is_in_sync(bed, "n1", name),  # type: ignore[misc]
            within_s=120,
            every_s=2.0,
        )


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_no_superblock_of_a_host_is_acted_upon(
    scenario: Scenario, devices: dict[str, str], bed: LabSession
) -> None:
    host = scenario.host
    with contextlib.ExitStack() as stack:
        for node in NODES:
            stack.enter_context(assembling(bed, node))
        before = {node: look(bed, node) for node in NODES}
        pool = bed.sh("n2", "findmnt -n -o SOURCE -T /srv/sanctl/main").stdout.strip()
        values = bed.sh("n2", f"blkid -p -o export {pool}").stdout.splitlines()
        known = dict(line.split("=", 1) for line in values if "=" in line)
        label = known.get("LABEL", "sanctl-main")
        host.sh(
            f"mkfs.ext4 -q -F -U {known['UUID']} -L {label} {devices['hostext4']}", timeout_s=60
        )
        host.sh(
            f"vgcreate -y {GROUP} {devices['hostlvm']} && lvcreate -y -l 1 -n a {GROUP}"
            f" && vgchange -an {GROUP}",
            timeout_s=60,
        )
        made = uuid.uuid4()
        write(host, devices["hostmd"], superblocks.md(made, name="h:0", size_bytes=SIZE_BYTES))
        write(
            host,
            devices["hostbtrfs"],
            superblocks.btrfs(uuid.UUID(known["UUID"]), label=label, size_bytes=SIZE_BYTES),
        )
        origin = bcache_superblock.render_superblock(
            is_flash=False, uuid=made.bytes, set_uuid=bytes(16), label="h", size_bytes=SIZE_BYTES
        )
        write(host, devices["hostbcache"], (bytes(4096) + origin).ljust(1 << 20, b"\0"))
        # The replicas start anew over it, first as standby, then to serve it.
        for node in ("n2", "n1"):
            bed.sh(OTHER[node], f"sanctl node standby {node}", timeout_s=300)
            bed.sh(OTHER[node], f"sanctl node online {node}", timeout_s=300)
            await_in_sync(bed)
            for each in NODES:
                assert_not_interpreted(bed, each, before[each])
        # As a package's update does it.
        for node in NODES:
            bed.sh(node, "udevadm trigger --action=add --subsystem-match=block --settle")
            assert_not_interpreted(bed, node, before[node])
        host.sh(f"vgchange -an {GROUP} || true", timeout_s=60)


def test_loop_devices_of_others_are_seen_as_ever(bed: LabSession) -> None:
    made = str(uuid.uuid4())
    file = "/var/tmp/of-somebody-else"
    bed.sh("n1", f"truncate -s 16M {file} && mkfs.ext4 -q -F -U {made} {file}")
    device = bed.sh("n1", f"losetup --find --show {file}").stdout.strip()
    try:
        wait_for(
            "the link of another's loop device",
            lambda: bed.sh("n1", f"readlink -f /dev/disk/by-uuid/{made}").stdout.strip() == device,
            within_s=30,
        )
    finally:
        bed.sh("n1", f"losetup -d {device}; rm {file}")
