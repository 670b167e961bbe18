# SPDX-License-Identifier: GPL-2.0-or-later
"""Meanings of the codes of the cluster: its configuration, nodes, pools, votes, accepted risks.

SAN-CIB, SAN-CLU, SAN-NODE, SAN-POOL, SAN-QUO, SAN-RISK.
"""

from __future__ import annotations

CODES = {
    "SAN-CIB-001": "The output of cibadmin is not a CIB. Another program of that name may come "
    "first in PATH, or the tools and the daemons are of different versions.",
    "SAN-CIB-002": "The output of crm_mon is not a cluster status.",
    "SAN-CLU-001": "This part of the cluster has no quorum. It cannot know what the other part "
    "does, so it changes nothing. Run the command where the majority is, or bring nodes back.",
    "SAN-CLU-002": "Pacemaker does not answer on this node: it is not running, is just being "
    "started, or this machine is not a node of a cluster.",
    "SAN-CLU-003": "Pacemaker answers only root and members of the group haclient.",
    "SAN-CLU-004": "Every change is planned on one version of the CIB and accepted for that "
    "version only. Other programs or operators changed the CIB in between, each time, so nothing "
    "was changed. Run the command again.",
    "SAN-CLU-005": "Pacemaker refused a change. Nothing was changed. The message is Pacemaker's "
    "own.",
    "SAN-CLU-006": "Pacemaker hands the whole CIB, compressed, as one message to all that ask for "
    "it. A CIB that exceeds the IPC buffer reaches nobody: no scheduler runs, nothing fails over. "
    "The buffer is sized by sanctl_corosync_devices of the inventory, and read when Pacemaker "
    "starts. More devices than that are accepted while the compressed CIB has room; hosts and "
    "restore points take room, too.",
    "SAN-NODE-001": "There is no node of that name in the cluster.",
    "SAN-NODE-002": "A witness votes and holds no data.",
    "SAN-NODE-003": "The node is not in service, so nothing can be created on it now.",
    "SAN-NODE-004": "The node serves a device, or is about to, that no other node could take over: "
    "no other replica is up to date, the other nodes leave or are away, or Pacemaker is told to "
    "leave the device alone. In standby the device would stop. '--accept SAN-NODE-004' goes on "
    "despite that.",
    "SAN-NODE-005": "The node holds replicas, so it cannot be taken out of the cluster. "
    "'sanctl node replace' moves all of them to another node.",
    "SAN-NODE-006": "The node was away when devices were deleted or replicas dropped, and still "
    "has their data. Taken out of the cluster it would not be told to remove that; if it ever "
    "joined again, an old replica could be taken for a new one. '--accept SAN-NODE-006' goes on "
    "despite that, where its disks are gone or will be emptied.",
    "SAN-NODE-007": "Only a node that has stopped can be taken out of the cluster: the others "
    "would fence one that runs. A node whose state is not known has to be fenced first.",
    "SAN-NODE-008": "A node that stays does not run, or too few would stay. Every node reads its "
    "own corosync.conf when it starts, so all that stay have to change theirs.",
    "SAN-NODE-009": "The nodes count the vote of a quorum device, or each of two is enough by "
    "itself. While a member is taken out, two parts that share no node could both have quorum.",
    "SAN-NODE-010": "A witness node runs no agent that changes its corosync.conf. The command "
    "does that where it runs.",
    "SAN-NODE-011": "A node's corosync.conf lacks a member that its running Corosync has, as after "
    "a 'sanctl node remove' that gave up. All nodes load their files at once: that member would be "
    "lost to those nodes, and be fenced. The files have to agree first.",
    "SAN-NODE-012": "DRBD keeps a bit in memory for each 4 KiB of each replica of a node, 32 MiB "
    "for each TiB, with DRBD 9 three times as much. A node gets no new replica, and none of its "
    "replicas grows, where that would come to more than half of its memory: it would run out of "
    "memory when many devices start or fail over, and be fenced. A replica that a device has lost "
    "is worth that risk: 'sanctl device replicas' and 'sanctl node replace' take --accept "
    "SAN-NODE-012, up to three quarters of the memory. Of a node whose release of sanctl does not "
    "publish its memory nothing is refused.",
    "SAN-NODE-013": "This storage node is a host itself, and something on it has the disk of a "
    "device open: its sessions stay. Where that is so at the end of a stop, what was not written "
    "yet is lost, unless another node serves the device.",
    "SAN-POOL-001": "The pool's marker is missing: its filesystem is not mounted. An empty "
    "directory never counts as an empty pool.",
    "SAN-POOL-002": "The pool's marker names another pool: another filesystem is mounted there.",
    "SAN-POOL-003": "The pool's filesystem cannot be read.",
    "SAN-POOL-011": "There is no pool of that name in cluster.toml.",
    "SAN-POOL-012": "The pool has too little room on that node. Room is the free space less what "
    "the pool's devices may still come to occupy, and less a reserve of one percent.",
    "SAN-POOL-013": "The pool on that node is not usable, or has not reported.",
    "SAN-POOL-014": "That node is not one of the pool's nodes.",
    "SAN-POOL-015": "The cluster has none or several pools, so one must be named.",
    "SAN-POOL-016": "Data of the pool is on flash that is missing or has failed. The slow disk "
    "alone has old data, so it is not used. Bring the flash back, or fill the pool again from its "
    "peers: docs/howto/pool-cache.md.",
    "SAN-POOL-017": "The disk that the inventory names for a cached pool holds other data, or "
    "what is mounted as the pool is on another one, and its data may be on flash alone.",
    "SAN-POOL-018": "The pool has no flash cache in cluster.toml.",
    "SAN-POOL-019": "A device that is to become part of a pool holds data: blkid finds a "
    "signature, or the first MiB is not zero. sanctl does not overwrite data that it does not "
    "know.",
    "SAN-POOL-020": "Preparing a pool with --anew discards its replicas on this node, so each of "
    "its devices must have a good replica on another node, and so must one whose dropped replica's "
    "files are still on this node. One that was just filled is good once "
    "what the resync wrote was flushed, within seconds as a rule: 'journalctl -u sanctl-resync' on "
    "its node.",
    "SAN-POOL-021": "The pool's files are in use on this node. A node in standby uses none.",
    "SAN-POOL-022": "A device that the inventory names for a cached pool does not exist. The pool "
    "may be in use with another one all the same, and its data be on flash alone.",
    "SAN-POOL-023": "The pool's filesystem has shut itself down after an error of its disk and "
    "takes no writes. It is mounted again when the disk answers and nothing uses it, and the "
    "replicas in it are filled from their peers. With flash, both are put together before.",
    "SAN-POOL-024": "The mode of a pool's flash is stored. A node of the pool is in standby or "
    "away and has not been seen in that mode; its data may be on that flash alone, so leave the "
    "flash in until the same command ends with exit status 0.",
    "SAN-POOL-025": "A loop device could not be attached to its file, detached from it or changed; "
    "the message says why.",
    "SAN-POOL-026": "New metadata was to be written to a loop device that is in use, or under a "
    "disk that is attached. Nothing was written.",
    "SAN-POOL-027": "A device of a cached pool cannot be read. An unreadable device does not "
    "count as blank: nothing was written to it.",
    "SAN-POOL-028": "'sanctl pool prepare NAME --anew' was interrupted on this node: the slow "
    "disk holds parts of the old data. It is not used until the same command has ended.",
    "SAN-POOL-029": "The pool was made on this node before, and now its slow disk or its "
    "filesystem is blank or another's, or its marker is gone. The disk may have been replaced, or "
    "read wrongly. The pool is never made again automatically: 'sanctl pool prepare NAME --anew' "
    "does that, and the replicas are filled from their peers.",
    "SAN-POOL-036": "The pool's filesystem is mounted read-only: mount(8) does so by itself, and "
    "calls it a success, where the disk was write-protected at that moment. No replica is started "
    "or created in it. Once it is mounted read-write the starts that failed are tried again.",
    "SAN-POOL-035": "The folder of the node's notes of its pools is missing, as where /var is a "
    "filesystem of its own that is not mounted. A missing note would permit to empty flash that "
    "may have the only copy of acknowledged writes, so the pool is not put together.",
    "SAN-POOL-034": "The filesystem of the pool has a largest file, and the device would be "
    "larger: ext4 with blocks of 4 KiB ends at 16 TiB. Of a node whose release of sanctl does not "
    "publish it nothing is refused.",
    "SAN-POOL-033": "A pool has an id on each node but where it began with a release that gave "
    "none: in its filesystem and in a note on the node's own disk. "
    "They differ, or one of both is missing: another filesystem of the pool is mounted, such as "
    "the one that it had before, whose replicas are old. Nothing of it is used. --accept "
    "SAN-POOL-033 makes it the pool's again; its replicas are then filled whole from the one that "
    "serves.",
    "SAN-POOL-032": "What is mounted at the path of a pool without flash is no new and empty "
    "filesystem, or nothing is mounted: 'sanctl pool prepare NAME --anew' marks nothing else, and "
    "formats nothing.",
    "SAN-POOL-031": "'sanctl pool prepare NAME --anew' found, with the pool out of use and just "
    "before it would have discarded anything, that a replica here may be needed: another one was "
    "lost after the first check, or the cluster does not answer any more. Nothing was discarded; "
    "the same command without --anew mounts the pool again. The CIB may name the node no more for "
    "the restore points in the message: with the pool mounted its agent adds it again.",
    "SAN-POOL-030": "A step of preparing a pool had no effect. The steps before it stay, and the "
    "command may be run again.",
    "SAN-QUO-001": "Corosync refused to read its configuration again. It goes on with the one it "
    "has; the nodes' files are already those of the next step, which is safe.",
    "SAN-QUO-002": "A strategy is changed only with every storage node online. A node that is "
    "away would come back with the old way of counting votes.",
    "SAN-QUO-003": "A node did not follow a change of strategy in time, or a quorum device has "
    "not given its vote. Between the steps every storage node is needed for quorum: no device can "
    "be served twice, and no device is served if a node is lost now.",
    "SAN-QUO-004": "The cluster counts votes as the strategy asks, and its quorum device gives no "
    "vote: its host is away, or cannot be reached. The command changed nothing. A run of the "
    "playbook with --limit says so and goes on.",
    "SAN-RISK-001": "The strategy heartbeat without fencing. If all links are lost, each node "
    "takes the other for dead, and both serve: from then on what hosts write exists in two "
    "versions, of which one will be discarded. This risk can be accepted by its code "
    "(accept_risks).",
    "SAN-RISK-004": "Fewer good replicas than wanted while a replica moves: DRBD 8.4 connects two "
    "nodes, so the old replica is dropped before the new one is filled. If the remaining replica "
    "fails meanwhile, the device is lost. This risk can be accepted by its code (--accept).",
}
