# SPDX-License-Identifier: GPL-2.0-or-later
"""Meanings of the codes of any command: what was typed, programs that it runs, what it awaits.

SAN-BUG, SAN-CLI, SAN-CMD, SAN-NAME, SAN-WAIT.
"""

from __future__ import annotations

CODES = {
    "SAN-BUG-001": "sanctl met a condition that its authors did not expect. The lines printed "
    "before the error say where. Changes that the command had made by then are in the journal "
    "(journalctl SYSLOG_IDENTIFIER=sanctl).",
    "SAN-CLI-001": "The command line is wrong: an unknown command or option, or a missing one. "
    "Nothing was done.",
    "SAN-CLI-002": "A question was answered with no. Nothing was changed.",
    "SAN-CLI-003": "/etc/sanctl/cluster.toml cannot be read. The rollout writes the same file on "
    "every node; sanctl runs on the nodes of the cluster, as root.",
    "SAN-CLI-004": "There is no such code.",
    "SAN-CLI-005": "The command was ended by its user, by the end of its terminal, as where a "
    "connection of ssh is lost, or by SIGTERM. What it had ordered by then goes on: the cluster "
    "carries it out. Of a command of several steps, such as 'node replace', 'node remove', 'device "
    "replicas' or 'cluster strategy set', those that were not ordered yet wait for the same "
    "command, run again.",
    "SAN-CMD-001": "A program that sanctl needs is not installed on this machine.",
    "SAN-CMD-002": "A program did not end within its time limit and was killed.",
    "SAN-CMD-004": "A program could not be started: the node had no memory, no process or no file "
    "handle left at that moment.",
    "SAN-CMD-005": "A program ended without an error, and what it printed is not XML: it was "
    "killed half-way, or the node has no memory left.",
    "SAN-CMD-003": "A program failed; the message contains its output.",
    "SAN-NAME-001": "A device's name is 1 to 31 of a-z, 0-9 and '-', and begins with a letter.",
    "SAN-NAME-002": "The name is one that sanctl, Pacemaker or DRBD uses for something else: "
    "sanctl..., pool..., reach..., all, votes, minor-..., delete-..., outdated-..., fence..., "
    "nodes..., status..., drained-..., or one that ends as an id of another device does: in -meta, "
    "-params, -replicas, -outdated, -reach, -prefer, -move, -start-0s, ... or '-'.",
    "SAN-NAME-003": "A node's name is what 'uname -n' prints on it, in lower case.",
    "SAN-NAME-004": "A pool's name is 1 to 31 of a-z, 0-9 and '-', and begins with a letter.",
    "SAN-NAME-005": "An iSCSI name is iqn.YYYY-MM.reversed.domain, in most cases with :name after "
    "it, of a-z, 0-9, '.', '-' and ':' and at most 223 bytes; or eui. and 16 hex digits. On a "
    "Linux host it is in /etc/iscsi/initiatorname.iscsi.",
    "SAN-NAME-006": "A size is a number and a unit (K, M, G, T, P: binary), and comes to a "
    "positive multiple of 4 KiB.",
    "SAN-NAME-007": "A host's name is 1 to 63 of a-z, 0-9, '-' and '.', and begins and ends with a "
    "letter or digit.",
    "SAN-NAME-010": "A host group's name is 1 to 63 of a-z, 0-9, '-' and '.', and begins and ends "
    "with a letter or digit.",
    "SAN-NAME-009": "A repository's name is 1 to 31 of a-z, 0-9 and '-', and begins with a letter.",
    "SAN-NAME-008": "A restore point's name is 1 to 40 of a-z, 0-9 and '-', and begins and ends "
    "with a letter or digit; for-backup and for-backup-XXXXXXXX are those of backups.",
    "SAN-WAIT-001": "The change was made, and its effect was not seen before the deadline. In "
    "most cases the cluster goes on by itself; the message says what was seen last.",
}
