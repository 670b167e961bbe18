# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a cluster has recovered: replicas in sync, no mark, nothing left over or hung. Pure.

As in Pacemaker's CTS, every node is checked after every fault: its kernel's state, not the
cluster's report of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sanctl.lab.measure import kernel_audit

#: Run on each member of the cluster as root; prints lines that `parse` reads. The audit's script
#: comes first, each of its lines after the word `view`.
SCRIPT = (
    "{\n"
    + kernel_audit.SCRIPT
    + r"""
} 2>/dev/null | sed 's/^/view /'
drbdsetup events2 --now 2>/dev/null | awk '
    function value(key) {
        for (i = 3; i <= NF; i++) if (index($i, key ":") == 1) return substr($i, length(key) + 2)
        return "-"
    }
    $2 == "resource" { print "drbd", value("name"), "suspended", value("suspended") }
    $2 == "connection" { print "drbd", value("name"), "connection", value("connection") }
    $2 == "device" { print "drbd", value("name"), "disk", value("disk") }
    $2 == "peer-device" { print "drbd", value("name"), "peer-disk", value("peer-disk")
                          print "drbd", value("name"), "replication", value("replication") }'
grep -s "" /sys/block/dm-*/dm/name /sys/block/dm-*/dm/suspended | sed 's/^/dm /'
grep -s "" /sys/block/loop*/loop/backing_file | sed 's/ /?/g; s/^/loop /'
for iqn in /sys/kernel/config/target/iscsi/iqn.*; do
    [ -d $iqn ] && echo "target ${iqn##*/}"
done
for store in /sys/kernel/config/target/core/iblock_*/*/; do
    store=${store%/}
    [ -d $store ] && echo "backstore ${store##*/}"
done
# In the kernel for long: seen there each time.
stuck=$(ps -eo pid=,stat=,comm= | awk '$2 ~ /^D/ { print $1 "-" $3 }')
for again in 1 2 3; do
    [ -n "$stuck" ] || break
    sleep 0.3
    now=$(ps -eo pid=,stat=,comm= | awk '$2 ~ /^D/ { print $1 "-" $3 }')
    stuck=$(for each in $stuck; do echo "$now" | grep -xF -- "$each"; done)
done
for each in $stuck; do echo "stuck $each"; done
cib=$(cibadmin --query --local --scope configuration 2>/dev/null)
echo "cib $(echo "$cib" | md5sum)"
# Constraints (until 0.1.0: node attributes) by which a replica is marked as outdated.
echo "$cib" | awk -F'"' '
    function value(key,  i) { for (i = 1; i < NF; i++) if ($i ~ " " key "=$") return $(i + 1) }
    /<node / { node = value("uname") }
    value("id") ~ /^sanctl-outdated-[^.]*[.]/ {
        name = substr(value("id"), 17); sub(/[.].*/, "", name); print "mark", name, value("node") }
    value("name") ~ /^sanctl-outdated-/ { print "mark", substr(value("name"), 17), node }'
true
"""
)

_GOOD = {
    "suspended": ("no",),
    "connection": ("Connected",),
    "disk": ("UpToDate",),
    "peer-disk": ("UpToDate",),
    "replication": ("Established",),
}


@dataclass(slots=True)
class NodeReport:
    """The state of one node, as SCRIPT printed it."""

    view: kernel_audit.View = field(default_factory=dict)
    drbd: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    dm: dict[str, bool] = field(default_factory=dict)  # name -> suspended
    loops: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    backstores: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    marks: list[tuple[str, str]] = field(default_factory=list)  # device, node of its replica
    cib: str = ""


def parse(text: str) -> NodeReport:
    """Read what SCRIPT printed on one node.

    Raises:
        ValueError: it printed something else.
    """
    report = NodeReport()
    views = []
    dm: dict[str, dict[str, str]] = {}  # folder in /sys -> what stands in it
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        words = rest.split()
        match kind, words:
            case "view", _:
                views.append(rest)
            case "drbd", [name, key, value]:
                report.drbd.setdefault(name, []).append((key, value))
            case "dm", [path_and_value]:
                path, _, value = path_and_value.partition(":")
                folder, _, what = path.rpartition("/")
                dm.setdefault(folder, {})[what] = value
            case "loop", [path_and_value]:
                report.loops.append(path_and_value.partition(":")[2])
            case "target", [iqn]:
                report.targets.append(iqn)
            case "backstore", [name]:
                report.backstores.append(name)
            case "mark", [name, node]:
                report.marks.append((name, node))
            case "stuck", [process]:
                report.stuck.append(process)
            case "cib", [digest, *_]:
                report.cib = digest
            case _:
                raise ValueError(f"the audit does not understand {line!r}")
    # A dm device may be removed while it is read: then it has no name, and is no left-over.
    report.dm = {
        each["name"]: each.get("suspended") == "1" for each in dm.values() if "name" in each
    }
    report.view = kernel_audit.parse_view("\n".join(views))
    return report


def find_problems(
    reports: Mapping[str, NodeReport],
    *,
    members: Collection[str],
    replicas: Mapping[str, Collection[str]],
) -> list[str]:
    """Return a sentence for each state that a recovered cluster does not have.

    Args:
        reports: the reports of the nodes that answered.
        members: all nodes of the cluster.
        replicas: the nodes with a replica, for each device.
    """
    found = [f"{node} does not answer" for node in sorted(set(members) - set(reports))]
    views = {node: report.view for node, report in reports.items()}
    found += kernel_audit.violations(views)
    for device, nodes in sorted(replicas.items()):
        active = kernel_audit.active_nodes(views, device)
        if len(active) != 1:
            found.append(f"{device}: served by {' and '.join(active) or 'no node'}")
        for node in sorted(set(nodes) & set(reports)):
            found += _replica_complaints(device, node, reports[node])
    for node, report in sorted(reports.items()):
        found += _leftovers(node, report, [d for d, nodes in replicas.items() if node in nodes])
        found += [f"{node}: process {each} is stuck in the kernel" for each in report.stuck]
    marks = {mark for report in reports.values() for mark in report.marks}
    found += [
        f"{device}: the replica on {node} is marked as outdated" for device, node in sorted(marks)
    ]
    digests = {report.cib for report in reports.values()}
    if len(digests) > 1:
        each = ", ".join(f"{node} {report.cib}" for node, report in sorted(reports.items()))
        found.append(f"the CIB is not the same on all nodes: {each}")
    return found


def _replica_complaints(device: str, node: str, report: NodeReport) -> Iterable[str]:
    states = report.drbd.get(device)
    if states is None:
        return [f"{device}: not started on {node}"]
    bad = [f"{key}:{value}" for key, value in states if value not in _GOOD[key]]
    if not any(key == "peer-disk" for key, _ in states):
        bad.append("no peer")
    if device not in report.view or not report.view[device].is_enabled:
        bad.append("not exported")
    return [f"{device}: on {node} {' '.join(bad)}"] if bad else []


def _leftovers(node: str, report: NodeReport, devices: Collection[str]) -> list[str]:
    found = [
        f"{node}: DRBD resource {name} of no device" for name in report.drbd if name not in devices
    ]
    expected = {
        f"sanctl-{name}{suffix}" for name in devices for suffix in ("", "-gate", ".disk", ".ram")
    }
    found += [
        f"{node}: dm device {name} of no device"
        for name in report.dm
        if name.startswith("sanctl-") and name not in expected
    ]
    found += [
        f"{node}: dm device {name} is suspended" for name, is_on in report.dm.items() if is_on
    ]
    files = [path for path in report.loops if path.rsplit("/", 1)[-1].split(".")[0] not in devices]
    found += [f"{node}: loop device over {path} of no device" for path in files]
    # One loop device for each data and metadata file: a second one is a left-over, too.
    found += [
        f"{node}: {count} loop devices over {path}"
        for path in sorted(set(report.loops))
        if (count := report.loops.count(path)) > 1
    ]
    found += [
        f"{node}: target {iqn} of no device"
        for iqn in report.targets
        if iqn.rpartition(".")[2] not in devices
    ]
    found += [
        f"{node}: backstore {name} of no device"
        for name in report.backstores
        if name.removeprefix("sanctl-") not in devices
    ]
    return found
