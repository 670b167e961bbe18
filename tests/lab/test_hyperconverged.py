# SPDX-License-Identifier: GPL-2.0-or-later
"""Storage nodes that are their own hosts: logins, moves, a guest that is followed, the end, memory.

On a laboratory of its own: two storage nodes, each a host of the devices, a witness, and no other
host. The guest is a service that Pacemaker runs and that has the device's map open.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from sanctl.errors import CommandError
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad, await_healthy
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.machines.spec import LabSpec, Network
from tests.support import ledgers
from tests.support.laboratory import own_or_new_laboratory
from tests.support.steps import boot_id

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.in_order,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

#: A device with a ledger and a guest, and one with a filesystem.
NAME, OTHER = "own1", "own2"
GUEST, MOUNT = "own-guest", "/mnt/own"
_DOWN_S, _BACK_S, _FOLLOWED_S = 240.0, 180.0, 90.0
_SAFE_SYSTEMD = "systemctl daemon-reload"

_GUEST_UNIT = """
[Unit]
Description=Has the disk of a device open and reads it, as a guest would
[Service]
ExecStart=/bin/sh -c 'exec 3<{path}; while :; do dd if={path} of=/dev/null bs=4096 count=1 iflag=direct status=none; sleep 1; done'
"""  # noqa: E501

_RESOURCES = f"""
cibadmin --create --scope resources --xml-text '<clone id="map-own">\
<meta_attributes id="map-own-meta"><nvpair id="map-own-i" name="interleave" value="true"/>\
<nvpair id="map-own-f" name="failure-timeout" value="60s"/></meta_attributes>\
<primitive id="map-own1" class="systemd" type="sanctl-map@{NAME}"><operations>\
<op id="map-own1-start" name="start" interval="0" timeout="60s"/>\
<op id="map-own1-monitor" name="monitor" interval="60s" timeout="60s"/>\
</operations></primitive></clone>' &&
cibadmin --create --scope resources --xml-text '<primitive id="{GUEST}" class="systemd" \
type="{GUEST}"><meta_attributes id="{GUEST}-m"><nvpair id="{GUEST}-s" name="resource-stickiness" \
value="100"/></meta_attributes><operations>\
<op id="{GUEST}-start" name="start" interval="0" timeout="60s"/>\
<op id="{GUEST}-stop" name="stop" interval="0" timeout="60s"/>\
<op id="{GUEST}-monitor" name="monitor" interval="20s" timeout="60s"/>\
</operations></primitive>' &&
cibadmin --create --scope constraints --xml-text '<rsc_order id="map-then-guest" first="map-own" \
then="{GUEST}"/>' &&
for rsc in map-own {GUEST}; do
    cibadmin --create --scope constraints --xml-text "<rsc_location id=\\"$rsc-w\\" rsc=\\"$rsc\\" \
node=\\"n3\\" score=\\"-INFINITY\\"/>"
done
"""

_REMOVE = f"""
crm_resource --resource {GUEST} --clear 2>/dev/null
sanctl device follow {NAME} --none
crm_resource --resource {GUEST} --set-parameter target-role --meta --parameter-value Stopped
crm_resource --resource map-own --set-parameter target-role --meta --parameter-value Stopped
crm_resource --wait --timeout 60
for each in map-then-guest map-own-w {GUEST}-w; do
    cibadmin --delete --force --xpath "//*[@id='$each']"
done
cibadmin --delete --force --xpath "//primitive[@id='{GUEST}']"
cibadmin --delete --force --xpath "//clone[@id='map-own']"
true
"""


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """In place of the session's laboratory, whose host is a machine of its own."""
    spec = LabSpec(name="testown", own_hosts=True, initiators=0)
    yield from own_or_new_laboratory(
        request,
        spec,
        fits=lambda own: own.own_hosts,
        options=("--hyperconverged", "--initiators", "0"),
    )


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "n1"))


@pytest.fixture(scope="module")
def paths(scenario: Scenario) -> Iterator[dict[str, str]]:
    """Two devices that both nodes may use, discovered on both; the map of each on every node."""
    bed = scenario.bed
    await_members_online(bed)
    # Both from the beginning: after a change Pacemaker knows the role by a recurring monitor alone,
    # and a transition that is aborted between its cancellation and the demotion loses it.
    scenario.sanctl(
        "device", "create", NAME, OTHER, "--size", "256M", "--nodes", "n1,n2", "--prefer", "n1",
        "--initiator", bed.node("n1").initiator_iqn, "--initiator", bed.node("n2").initiator_iqn,
        timeout_s=300.0,
    )  # fmt: skip
    found: dict[str, str] = {}
    for node in ("n1", "n2"):
        host = Initiator(bed, node)
        # Discovery alone: sanctl-logins.service does the rest.
        host.discover(bed.node(node).address(Network.ISCSI))
        for device in (NAME, OTHER):
            found[device] = await_paths(scenario, node, device)
    yield found
    for node in ("n1", "n2"):
        for device in (NAME, OTHER):
            Initiator(bed, node).logout(f"{scenario.iqn_prefix()}.{device}")
    scenario.delete_together([NAME, OTHER])


def await_paths(scenario: Scenario, node: str, device: str) -> str:
    """Wait until a node has both paths of a device; return the map's path."""
    host, portals = Initiator(scenario.bed, node), scenario.portals()
    target = f"{scenario.iqn_prefix()}.{device}"

    def complete() -> str | None:
        names = host.paths(target, portals)
        return f"/dev/mapper/{set(names.values()).pop()}" if len(names) == len(portals) else None

    return wait_for(f"both paths of {device} on {node}", complete, within_s=_BACK_S, every_s=2.0)


@pytest.fixture(scope="module")
def load(scenario: Scenario, paths: dict[str, str]) -> Iterator[LedgerLoad]:
    """A ledger of n2, which is the node that is never switched off here."""
    on_n2 = Scenario(scenario.bed, Initiator(scenario.bed, "n2"))
    target = f"{scenario.iqn_prefix()}.{NAME}"
    made = ledgers.start(on_n2, NAME, target, paths[NAME], rate=50, region_bytes=32 * 2**20)
    yield made
    ledgers.assert_nothing_lost(made)


@pytest.fixture(scope="module")
def guest(scenario: Scenario, paths: dict[str, str]) -> Iterator[None]:
    """A guest of Pacemaker with the device's map open; the device follows it."""
    bed = scenario.bed
    unit = _GUEST_UNIT.format(path=paths[NAME])
    for node in ("n1", "n2"):
        bed.sh(
            node,
            f"cat >/etc/systemd/system/{GUEST}.service && {_SAFE_SYSTEMD}",
            stdin=unit,
        )
    bed.sh("n1", _RESOURCES, timeout_s=120)
    bed.sh("n1", f"sanctl device follow {NAME} --resource {GUEST}")
    yield
    bed.sh("n1", _REMOVE, timeout_s=180, ok=range(256))


def guest_node(bed: LabSession, asked_of: str = "n2") -> str:
    """Return the node that runs the guest, or nothing."""
    out = bed.sh(asked_of, f"crm_resource --resource {GUEST} --locate", ok=range(256)).stdout
    return out.partition(" is running on: ")[2].strip()


def await_followed(bed: LabSession, node: str) -> None:
    wait_for(
        f"the guest, and then its device, on {node}",
        lambda: guest_node(bed) == node and collect.active_node(bed, NAME) == node,
        within_s=_FOLLOWED_S,
        every_s=1.0,
    )


def move_guest(bed: LabSession, node: str) -> None:
    # 108: it is there already (crm_exit_t, CRM_EX_EXISTS).
    bed.sh("n2", f"crm_resource --resource {GUEST} --clear; crm_resource --resource {GUEST} "
           f"--move --node {node}", timeout_s=60, ok=(0, 108))  # fmt: skip
    await_followed(bed, node)


def reboot(bed: LabSession, node: str) -> tuple[float, float]:
    """Type `reboot` on a node; return when, and how long it took until another boot answered."""
    before, began_s = boot_id(bed, node), time.time()
    bed.sh(node, "reboot", ok=range(256), timeout_s=30)

    def is_another() -> bool:
        (bed.lab.run_directory / f"ssh-{node}").unlink(missing_ok=True)
        return boot_id(bed, node) != before

    wait_for(f"{node} to have rebooted", is_another, within_s=_DOWN_S, every_s=2.0)
    return began_s, time.time() - began_s


def await_whole(scenario: Scenario, node: str) -> None:
    """Wait until a node is a member, its replicas are in sync, and it is logged in again."""
    bed = scenario.bed
    await_members_online(bed)
    for device in (NAME, OTHER):
        wait_for(
            f"{device} in sync on {node}",
            lambda device=device: collect.is_in_sync(bed, node, device),  # type: ignore[misc]
            within_s=_BACK_S,
            every_s=1.0,
        )
        await_paths(scenario, node, device)


def not_fenced(bed: LabSession, since_s: float) -> list[str]:
    entries = collect.journals(bed, [node.name for node in bed.cluster], since_s - 1)
    assert not [e.message for e in entries if "Requesting fencing" in e.message]
    return [e.message for e in entries if e.identifier == "sanctl" and e.action == "own-host"]


def make_physical_volume(bed: LabSession, path: str) -> str:
    """Make a device a physical volume, as a guest does with its disk; return its UUID.

    udev has one link more of it then on each node. Without the node's settings, which hide it.
    """
    bed.sh("n1", f"LVM_SYSTEM_DIR=$(mktemp -d) pvcreate --yes {path}")
    found = set[str]()
    for node in ("n1", "n2"):
        # What n1 writes is no event on n2.
        links = bed.sh(
            node,
            f"udevadm trigger --settle --action=change --name-match={path} && "
            f"udevadm info --query=symlink --name={path}",
        ).stdout
        found |= {link.partition("lvm-pv-uuid-")[2] for link in links.split()} - {""}
    (uuid,) = found
    return uuid


def test_each_node_is_logged_in_to_both_and_nothing_is_wrong(
    scenario: Scenario, paths: dict[str, str]
) -> None:
    bed = scenario.bed
    uuid = make_physical_volume(bed, paths[NAME])
    for node in ("n1", "n2"):
        listed = bed.sh(node, f"multipath -ll {paths[NAME]}").stdout
        assert listed.count("active ready") == listed.count("active ghost") == 1, listed
        # LVM sees none of them; dirty pages of them are limited.
        seen = bed.sh(node, "pvs -a -o pv_name,pv_uuid 2>/dev/null || true").stdout
        assert "36001405" not in seen and uuid not in seen, seen
        for disk in bed.sh(
            node, "cd /sys/block && grep -l SANCTL sd*/device/vendor"
        ).stdout.split():
            known = bed.sh(node, f"udevadm info /dev/{disk.partition('/')[0]}").stdout
            assert "DM_UDEV_DISABLE_OTHER_RULES_FLAG=1" in known, known
            assert "DM_MULTIPATH_DEVICE_PATH=1" in known, known
        dm = bed.sh(node, f"basename $(readlink -f {paths[NAME]})").stdout.strip()
        limits = bed.sh(node, f"cd /sys/block/{dm}/bdi && cat max_ratio strict_limit").stdout
        assert limits.split() == ["10", "1"], limits
        bed.sh(node, "systemctl is-active sanctl-logins.service sanctl-paths.service")
        found = json.loads(bed.sh(node, "sanctl doctor --output json", ok=range(256)).stdout)
        codes = {each["code"] for each in found["data"]["findings"]}
        assert not codes & {"SAN-DOC-008", "SAN-DOC-012", "SAN-HLT-142"}, codes
    bed.sh("n1", f"wipefs --quiet --all {paths[NAME]}")
    await_healthy(bed, "n1")


def test_a_node_writes_to_itself_and_over_the_network(load: LedgerLoad) -> None:
    """The path to its own portal while n2 serves, the other one while n1 does."""
    bed = load.bed
    for to in ("n2", "n1"):
        bed.sh("n1", f"sanctl device move {NAME} --to {to}", timeout_s=120)
        listed = load.host.sh(f"multipath -ll {load.run.device}")
        disk = next(line for line in listed.splitlines() if "active ready" in line).split()
        name = next(word for word in disk if word.startswith("sd"))
        link = load.host.sh(f"ls -l /dev/disk/by-path | grep -w {name}$")
        assert f"ip-{bed.node(to).address(Network.ISCSI)}:3260" in link, (listed, link)
        time.sleep(3)


@pytest.mark.usefixtures("guest")
def test_the_device_follows_its_guest_and_not_the_other_way_round(load: LedgerLoad) -> None:
    bed = load.bed
    wait_for("the guest to run", lambda: guest_node(bed), within_s=_FOLLOWED_S)
    for node in ("n2", "n1"):
        move_guest(bed, node)
    with pytest.raises(CommandError, match="SAN-DEV-027"):
        bed.sh("n1", f"sanctl device move {NAME} --to n2")
    # A drained node keeps its guest; the device comes back to it.
    bed.sh("n1", "sanctl node drain n1", timeout_s=120)
    assert (guest_node(bed), collect.active_node(bed, NAME)) == ("n1", "n2")
    bed.sh("n1", "sanctl node undrain n1", timeout_s=60)
    await_followed(bed, "n1")
    assert "follows:" in bed.sh("n1", f"sanctl device show {NAME}").stdout


@pytest.mark.usefixtures("guest")
def test_a_typed_reboot_ends_and_the_guest_goes_on_elsewhere(
    scenario: Scenario, load: LedgerLoad, paths: dict[str, str]
) -> None:
    """A mount of n1's own, a guest of Pacemaker with its disk open: both before the target."""
    bed = scenario.bed
    move_guest(bed, "n1")
    bed.sh(
        "n1",
        f"mkfs.ext4 -q -F {paths[OTHER]} && mkdir -p {MOUNT} && "
        f"echo '{paths[OTHER]} {MOUNT} ext4 _netdev,nofail,"
        "x-systemd.after=sanctl-logins.service,x-systemd.device-timeout=300 0 0' "
        f">>/etc/fstab && {_SAFE_SYSTEMD} && mount {MOUNT} && "
        f"head -c 8M /dev/urandom >{MOUNT}/file && sha256sum {MOUNT}/file >{MOUNT}/sum",
        timeout_s=120,
    )
    began_s, took_s = reboot(bed, "n1")
    print(f"  another boot answered after {took_s:.0f} s")
    await_followed(bed, "n2")
    await_whole(scenario, "n1")
    said = not_fenced(bed, began_s)
    # The first of both units found the guest's disk open, and the second did not.
    assert [text for text in said if f"{NAME} stay" in text and "is open" in text], said
    assert len([text for text in said if "is open" in text]) == 1, said
    wait_for(
        "the mount to be back",
        lambda: bed.sh("n1", f"mountpoint -q {MOUNT} && sha256sum -c {MOUNT}/sum").status == 0,
        within_s=_BACK_S,
    )
    bed.sh("n1", f"umount {MOUNT} && sed -i '\\|{MOUNT}|d' /etc/fstab && {_SAFE_SYSTEMD}")
    await_healthy(bed, "n1")


@pytest.mark.usefixtures("guest")
def test_guest_and_server_crash_at_once(scenario: Scenario, load: LedgerLoad) -> None:
    bed = scenario.bed
    move_guest(bed, "n1")
    # What keeps it there would keep it from n2, too, if it were a ban.
    bed.sh("n2", f"crm_resource --resource {GUEST} --clear")
    bed.cut_power("n1")
    await_followed(bed, "n2")
    (bed.lab.run_directory / "ssh-n1").unlink(missing_ok=True)
    bed.ensure_power("n1")
    await_whole(scenario, "n1")
    await_healthy(bed, "n2")


def test_dirty_pages_for_itself_while_memory_is_short(
    scenario: Scenario, load: LedgerLoad, paths: dict[str, str]
) -> None:
    """Buffered writes to a device that the node serves itself, beside one that eats memory."""
    bed = scenario.bed
    bed.sh("n1", f"sanctl device move {OTHER} --to n1", timeout_s=120, ok=range(256))
    began_s = time.time()
    # Takes all but 60 MiB, keeps touching it, and is the first that the kernel ends.
    bed.sh(
        "n1",
        "systemd-run --quiet --collect --unit=eater -p OOMScoreAdjust=1000 python3 -c '"
        "import time\n"
        'free = {l.split()[0]: int(l.split()[1]) for l in open("/proc/meminfo")}'
        '["MemAvailable:"] * 1024\n'
        "held = bytearray(max(free - (60 << 20), 0))\n"
        "end = time.time() + 60\n"
        "while time.time() < end:\n"
        "    held[::4096] = bytes(len(range(0, len(held), 4096)))\n"
        "    time.sleep(1)\n'",
    )
    time.sleep(3)
    # Through a page cache that has no room for it, twice.
    done = bed.sh(
        "n1",
        f"for round in 1 2; do timeout 300 dd if=/dev/zero of={paths[OTHER]} bs=1M count=100 "
        "conv=fdatasync,notrunc status=none || exit 1; done; date +%s",
        timeout_s=900,
        ok=range(256),
    )
    assert done.status == 0, done.stderr
    print(f"  200 MiB in {time.time() - began_s:.0f} s")
    bed.sh("n1", "systemctl stop eater 2>/dev/null || true")
    not_fenced(bed, began_s)
    await_healthy(bed, "n1")
