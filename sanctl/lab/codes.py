# SPDX-License-Identifier: GPL-2.0-or-later
"""Meanings of the laboratory's codes (SAN-LAB, SAN-BENCH, SAN-CHAOS, SAN-DEMO)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CODES: Mapping[str, str] = MappingProxyType(
    {
        "SAN-BENCH-001": "A program that was to be measured failed, so there is nothing to "
        "compare.",
        "SAN-CHAOS-001": "After a fault of the fault bench was undone, the cluster did not return "
        "to full health by itself. The message lists what the kernels of all nodes still report.",
        "SAN-CHAOS-002": "The fault bench had ordered a move of its device, and the command did "
        "not end, neither with success nor with an error.",
        "SAN-CHAOS-003": "The fault bench had ordered an agent to be killed during a move of its "
        "device, and no agent was: nothing was broken.",
        "SAN-CHAOS-004": "Once the cluster had recovered, no node could list the restore points of "
        "the fault bench's device, or its copies at the second site.",
        "SAN-DEMO-001": "The demonstration waited for a state that was not reached.",
        "SAN-DEMO-002": "The demonstration needs its device active on exactly one node.",
        "SAN-DEMO-003": "The demonstration could not read the progress of the resync.",
        "SAN-DEMO-004": "Writing did not continue, or did not end, as the demonstration expected.",
        "SAN-DEMO-005": "A property that the demonstration is to show did not hold.",
        "SAN-LAB-001": "A number, a size or a name given for the laboratory is malformed or out "
        "of range.",
        "SAN-LAB-002": "The laboratory has no node of that name.",
        "SAN-LAB-003": "There is no laboratory of that name on this machine.",
        "SAN-LAB-004": "The laboratory, or its node, is off.",
        "SAN-LAB-005": "The options given for a network cable exclude each other.",
        "SAN-LAB-006": "A laboratory of that name exists with other nodes, sizes or another "
        "release. A laboratory cannot be changed: destroy it, or choose another name.",
        "SAN-LAB-007": "The part that was to be broken does not exist, or the sides of a "
        "partition overlap.",
        "SAN-LAB-008": "The packet filters that cut nodes off from each other could not be set. "
        "They are classic BPF programs at the taps; this machine's kernel needs sch_ingress and "
        "cls_bpf.",
        "SAN-LAB-009": "A fault could not be undone, because its node does not answer.",
        "SAN-LAB-010": "A program the laboratory needs is not installed on the host.",
        "SAN-LAB-011": "A program did not end within its time.",
        "SAN-LAB-012": "A program failed while the laboratory was being built; the end of its log "
        "is shown.",
        "SAN-LAB-013": "Processes of a node did not end when they were killed.",
        "SAN-LAB-014": "A node went off while it booted; the end of its console is shown.",
        "SAN-LAB-015": "A node did not finish booting in time.",
        "SAN-LAB-016": "Ending the laboratory left a process, a namespace or a network device "
        "behind.",
        "SAN-LAB-020": "The host's own apt configuration has no mirror for the nodes' Debian "
        "release.",
        "SAN-LAB-021": "A kernel given with --kernel is missing, or its modules are.",
        "SAN-LAB-030": "The host lacks something the laboratory needs: a package, memory, disk "
        "space, root's rights, or it is of another distribution.",
        "SAN-LAB-040": "The rollout to the laboratory failed. Its last lines are shown.",
        "SAN-LAB-041": "The command needs a part of the source tree, and this is an installed "
        "package.",
        "SAN-LAB-042": "The rollout needs Ansible, which 'make setup' installs.",
        "SAN-LAB-043": "A kernel configuration was not found.",
        "SAN-LAB-044": "A fragment of kernel-configs/ was not found.",
    }
)
