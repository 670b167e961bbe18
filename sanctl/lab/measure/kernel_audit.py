# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads DRBD, dm and LIO of every node's kernel; names broken invariants (two Primaries). Pure.

The script below shares no code with the agents: an agent that misreads the state of its node would
otherwise be checked by the same mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: Run on each storage node as root; prints lines that `parse_view` reads.
SCRIPT = r"""
drbdsetup events2 --now 2>/dev/null | awk '$2 == "resource" || $2 == "device" {
    name = role = disk = ""
    for (i = 3; i <= NF; i++) {
        split($i, pair, ":")
        if (pair[1] == "name") name = pair[2]
        if (pair[1] == "role") role = pair[2]
        if (pair[1] == "disk") disk = pair[2]
    }
    if ($2 == "resource") print "role", name, role; else print "disk", name, disk
}'
# Files are read by the shell itself: under load on a small machine, processes are what costs.
tables="
$(dmsetup table 2>/dev/null)"
for dm in /sys/block/dm-*; do
    { read -r name <$dm/dm/name && read -r suspended <$dm/dm/suspended; } 2>/dev/null || continue
    case $name in sanctl-*-gate) ;; *) continue ;; esac
    table=${tables#*"
$name: "}
    [ "$table" != "$tables" ] || continue
    name=${name#sanctl-}
    set -- $table
    echo "table ${name%-gate} $3 $suspended"
done
cd /sys/kernel/config/target 2>/dev/null || exit 0
for store in core/iblock_*/*/alua; do
    [ -d "$store" ] || continue
    name=${store%/alua}; name=${name##*/sanctl-}
    for group in "$store"/sanctl-*; do
        read -r state <"$group/alua_access_state" && echo "alua $name ${group##*/} $state"
    done 2>/dev/null
done
for lun in iscsi/iqn.*/tpgt_*/lun/lun_*; do
    [ -d "$lun" ] || continue
    # Not of an exported restore point, which is read-only.
    set -- "$lun"/sanctl-point.*; [ ! -L "$1" ] || continue
    tpg=${lun%/lun/*}
    group=none
    while read -r line; do
        case $line in "TG Port Alias: "*) group=${line#TG Port Alias: } ;; esac
    done <"$lun/alua_tg_pt_gp"
    iqn=${tpg%/*}
    read -r enabled <"$tpg/enable" && echo "lun ${iqn##*.} ${group:-none} $enabled"
done
# Entries of access lists that ask for CHAP; a process is started only where there is one.
asking=
for acl in iscsi/iqn.*/tpgt_*/acls/*; do
    read -r user <"$acl/auth/userid" && [ -n "$user" ] && asking="$asking $acl/auth"
done 2>/dev/null
[ -z "$asking" ] || find $asking -maxdepth 0 -perm /077 | while IFS=/ read -r _ iqn _ _ acl _; do
    echo "readable ${iqn##*.} $acl"
done
for tpg in iscsi/iqn.*/tpgt_*; do
    # Asked twice: a start enables what has a LUN, a stop removes the LUN of what is disabled.
    read -r before <"$tpg/enable" && set -- "$tpg"/lun/lun_* && [ ! -d "$1" ] \
        && read -r after <"$tpg/enable" || continue
    iqn=${tpg%/*}
    echo "listed ${iqn##*.} ${tpg##*/tpgt_} $((before & after))"
done 2>/dev/null
true
"""

_ACTIVE_OPTIMIZED = "0"


@dataclass(slots=True)
class DeviceView:
    """One device as one node's kernel sees it."""

    role: str = ""
    disk: str = ""
    table: str = ""  # of the gate, the dm device between target and DRBD
    is_suspended: bool = False
    alua: dict[str, str] = field(default_factory=dict)
    lun_groups: list[str] = field(default_factory=list)
    is_enabled: bool = False
    enabled_without_lun: list[str] = field(default_factory=list)  # tags of TPGs
    readable_secrets: list[str] = field(default_factory=list)  # of these initiators

    @property
    def is_active(self) -> bool:
        """Whether a host that is logged in to this node would be served."""
        return self.is_enabled and any(
            group not in self.alua or self.alua[group] == _ACTIVE_OPTIMIZED
            for group in self.lun_groups
        )


View = dict[str, DeviceView]


def parse_view(text: str) -> View:
    """Read what SCRIPT printed on one node: its devices by name."""
    view: View = {}
    for line in text.splitlines():
        kind, name, *rest = line.split()
        device = view.setdefault(name, DeviceView())
        match kind, rest:
            case "role", [role]:
                device.role = role
            case "disk", [disk]:
                device.disk = disk
            case "table", [table, suspended]:
                device.table = table
                device.is_suspended = suspended == "1"
            case "alua", [group, state]:
                device.alua[group] = state
            case "lun", [group, enable]:
                device.lun_groups.append(group)
                device.is_enabled = device.is_enabled or enable == "1"
            case "listed", [tag, enabled]:
                if enabled == "1":
                    device.enabled_without_lun.append(tag)
            case "readable", [initiator]:
                device.readable_secrets.append(initiator)
            case _:
                raise ValueError(f"the audit does not understand {line!r}")
    return view


def violations(views: Mapping[str, View]) -> list[str]:
    """Return a sentence for each broken invariant; the views are by node name.

    At most one node serves a device, Active/Optimized implies Primary there, and a device that is
    not Primary has a gate of type `error` beneath its target, which takes and gives no data. Of a
    target's TPGs one has the LUN, and no other, which only lists another node's portals, takes
    logins. The kernel shows CHAP secrets to root alone.
    """
    wrong: list[str] = []
    for name in sorted({name for view in views.values() for name in view}):
        here = {node: view[name] for node, view in views.items() if name in view}
        primaries = [node for node, device in here.items() if device.role == "Primary"]
        active = [node for node, device in here.items() if device.is_active]
        if len(primaries) > 1:
            wrong.append(f"{name}: Primary on {_and(primaries)}")
        if len(active) > 1:
            wrong.append(f"{name}: Active/Optimized on {_and(active)}")
        wrong.extend(
            f"{name}: Active/Optimized on {node}, which is {here[node].role or 'not in DRBD'}"
            for node in active
            if node not in primaries
        )
        wrong.extend(
            f"{name}: {node} is {device.role}, yet its gate leads onto a {device.table} table"
            for node, device in here.items()
            if device.role != "Primary" and device.table not in ("", "error")
        )
        for node, device in here.items():
            if len(device.lun_groups) > 1:
                wrong.append(f"{name}: {node} has LUNs in {len(device.lun_groups)} TPGs")
            wrong.extend(
                f"{name}: {node} has enabled the TPG {tag}, which has no LUN"
                for tag in device.enabled_without_lun
            )
            wrong.extend(
                f"{name}: {node} shows the CHAP secret of {initiator} to every user"
                for initiator in device.readable_secrets
            )
    return wrong


def active_nodes(views: Mapping[str, View], device: str) -> list[str]:
    """Return the nodes that serve a device."""
    return [node for node, view in views.items() if device in view and view[device].is_active]


def _and(names: Sequence[str] | Iterable[str]) -> str:
    return " and ".join(names)
