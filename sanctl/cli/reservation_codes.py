# SPDX-License-Identifier: GPL-2.0-or-later
"""Meanings of the codes of persistent reservations, SAN-RES."""

from __future__ import annotations

CODES = {
    "SAN-RES-001": "LIO's text of a device's persistent reservations is not as this release reads "
    "it. What a host has asked for is not answered before it is read.",
    "SAN-RES-002": "The file with a device's persistent reservations is missing on this node, or "
    "cannot be read: who may write is not known, and this replica is not promoted. A node that has "
    "its file serves. Where none has, 'sanctl target reservations NAME clear' ends that.",
    "SAN-RES-003": "A node with a replica did not take, or does not tell, a device's persistent "
    "reservations: it does not answer, the device is not up there, or it does not see the other "
    "node as Primary. A host's change of them waits until it has it or is marked as outdated.",
    "SAN-RES-004": "A change of a device's persistent reservations was under way while its role "
    "changed. The action, or the host's command, is tried again.",
    "SAN-RES-005": "LIO has other persistent reservations in force than it was given, or would "
    "have: the host that holds the device has no entry in the access list of this node, for want "
    "of its secret, say. The device is not served like that, as others could write. It is once the "
    "host has its entry, is off the device's list ('sanctl target deny'), or the reservation is "
    "given up: 'sanctl target reservations NAME clear'.",
    "SAN-RES-006": "sanctl-reservations.service, which keeps what hosts reserve, does not run on "
    "this node. A device with reservations is not started without it. Such a start is tried again "
    "by itself, four times at most; then clean the failure up once the service runs.",
    "SAN-RES-007": "The file with a device's persistent reservations was written by a newer "
    "release of sanctl than this node has. It is whole, and stays: this replica is not promoted, "
    "and takes no change, until sanctl is updated on the node. Do not clear the reservations for "
    "this: the hosts that hold the device may still be at work.",
    "SAN-RES-011": "Persistent reservations are switched on or off while no host is logged in to "
    "the device on any node: a host learns at login what a device offers, and one that counts on "
    "keeping others out must not lose that without a word. Nodes say about every ten seconds which "
    "hosts have sessions with them. A node that does not say, or whose end is not certain, counts "
    "as one with sessions.",
    "SAN-RES-012": "Hosts are registered with the device, or that is not known. Registrations "
    "outlive sessions: hosts that are off for an hour count on them. Switched off, all hosts on "
    "the access list could write.",
    "SAN-RES-013": "The device was made without persistent reservations, or they were switched off "
    "(sanctl device set). Hosts that ask for one are refused.",
    "SAN-RES-014": "A node with a replica of the device, or one that is to get one, runs a release "
    "of sanctl that keeps no persistent reservations, or a kernel before Linux 6.9, which loses "
    "what hosts ask for when the service that keeps it ends. After a failover to it every host on "
    "the access list could write. Update all nodes first.",
    "SAN-RES-015": "The order to clear a device's reservations was replaced by a later one, or "
    "they were switched off, before the command saw it carried out.",
}
