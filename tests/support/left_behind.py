# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests leave in a laboratory that others use after them: it is compared with how it was made.

A device, a restore point, a resource or constraint, a node's attribute, a file that fills a pool, a
loop device, a session of the host, a finding of `sanctl status`.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from sanctl.errors import CommandError, NotConverged
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import await_members_online
from sanctl.lab.machines.spec import Role

#: By node and kind, what there is, one in a line.
State = dict[str, list[str]]

#: Nodes publish what they see every few seconds, and a target is removed after its device.
_SETTLED_WITHIN_S = 60.0
_SECTION = "== "
_CLUSTER_NAME = "cluster"
#: Elements of a CIB that only hold others: an empty one has no effect.
_CONTAINERS = frozenset(
    {"cluster_property_set", "instance_attributes", "meta_attributes", "operations", "utilization"}
)
#: Pacemaker writes it after `pcs resource cleanup` and similar; it says when, and nothing else.
_TIMES = frozenset({"last-lrm-refresh"})
_STORAGE = """
echo '== files'; find /srv/sanctl -mindepth 2 ! -type d 2>/dev/null | sort
echo '== mounts'; findmnt -rn -o TARGET,FSTYPE,FS-OPTIONS | grep ^/srv/sanctl
echo '== dying'; ls /run/sanctl/die-after 2>/dev/null
echo '== drbd'; drbdsetup show --show-defaults 2>/dev/null | grep ^resource
echo '== mapper'; dmsetup ls | cut -f1 | sort
echo '== disks'; dmsetup table | grep -v sanctl- | sort
echo '== loops'; losetup -n -O BACK-FILE | sort
echo '== targets'; ls /sys/kernel/config/target/iscsi 2>/dev/null | grep ^iqn
echo '== units'; systemctl list-units --failed --plain --no-legend | cut -d' ' -f1
"""
_HOST = """
echo '== sessions'; iscsiadm -m session 2>/dev/null | cut -d' ' -f4 | sort
echo '== nodes'; iscsiadm -m node 2>/dev/null | sort
echo '== mounts'; findmnt -rn -t ext4,xfs -o TARGET
echo '== ledgers'; systemctl list-units --plain --no-legend '*ledger*' | cut -d' ' -f1
"""
_CLUSTER = """
for scope in crm_config nodes resources constraints fencing-topology; do
    echo "== $scope"; cibadmin --query --scope $scope 2>/dev/null
done
"""


def look(bed: LabSession) -> State:
    """Return what there is in a laboratory.

    Raises:
        CommandError: a node does not answer.
    """
    state: State = {}
    for node in bed.lab.machines:
        script = {Role.STORAGE: _STORAGE, Role.INITIATOR: _HOST}.get(node.role)
        if script is not None:
            state |= parse(node.name, bed.sh(node.name, script, timeout_s=60, ok=range(256)).stdout)
    member = bed.cluster[-1].name
    told = parse(_CLUSTER_NAME, bed.sh(member, _CLUSTER, timeout_s=60, ok=range(256)).stdout)
    state |= {scope: cib_entries("\n".join(lines)) for scope, lines in told.items()}
    status = bed.sh(member, "sanctl status --output json", timeout_s=60, ok=range(256)).stdout
    findings = json.loads(status)["data"]["findings"]
    state[f"{_CLUSTER_NAME} findings"] = sorted({each["code"] for each in findings})
    return state


def parse(whose: str, text: str) -> State:
    """Return what a script printed, by its sections. Pure."""
    state: State = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(_SECTION):
            lines = state.setdefault(f"{whose} {line.removeprefix(_SECTION)}", [])
        elif line.strip():
            lines.append(line.strip())
    return state


def cib_entries(xml: str) -> list[str]:
    """Return what a section of the CIB says, an entry in a line: where it is, its attributes. Pure.

    Two sections that mean the same give the same: the order, the ids of name-value pairs and empty
    containers are left out.

    Raises:
        ValueError: it is no XML; an absent section is the empty text.
    """
    if not xml.strip():
        return []
    try:
        root = ET.fromstring(xml)
    except ET.ParseError as error:
        raise ValueError(f"cibadmin did not print XML: {error}") from error
    return sorted(line for child in root for line in _entries(child, ()))


def _entries(element: ET.Element, above: tuple[str, ...]) -> list[str]:
    if element.tag == "nvpair":
        name = element.get("name", "")
        is_said = name not in _TIMES
        return [f"{'/'.join(above)} {name}={element.get('value')}"] if is_said else []
    here = (*above, f"{element.tag}#{element.get('id', '')}")
    below = [line for child in element for line in _entries(child, here)]
    if element.tag in _CONTAINERS:
        return below
    said = "".join(f" {key}={value}" for key, value in sorted(element.items()) if key != "id")
    return [f"{'/'.join(here)}{said}", *below]


def difference(before: State, now: State) -> str:
    """Return the first line that is there now and was not, or the other way round. Pure."""
    for kind in sorted(before.keys() | now.keys()):
        was, is_now = before.get(kind, []), now.get(kind, [])
        more = [line for line in is_now if line not in was]
        less = [line for line in was if line not in is_now]
        if more or less:
            return f"{kind}: " + (f"{more[0]!r} is left" if more else f"{less[0]!r} is gone")
    return ""


def await_nothing(bed: LabSession, before: State) -> str:
    """Wait until a laboratory is as it was; return what differs, or why that is not known."""
    found = "it was not looked at"

    def is_as_before() -> bool:
        nonlocal found
        found = difference(before, look(bed))
        return not found

    try:
        await_members_online(bed)
        wait_for("what tests leave to go", is_as_before, within_s=_SETTLED_WITHIN_S, every_s=3.0)
    except NotConverged as error:
        return found or str(error)
    except (CommandError, ValueError, LookupError) as error:
        return f"it cannot be looked at: {error}"
    return ""
