# SPDX-License-Identifier: GPL-2.0-or-later
"""Meanings of the codes of restore points, and of what is made from them: clones, backups, copies.

SAN-BKP, SAN-CLONE, SAN-EXP, SAN-HOOK, SAN-REST, SAN-SCHED, SAN-SITE, SAN-SNAP.
"""

from __future__ import annotations

CODES = {
    "SAN-BKP-001": "A backup is named as DEVICE@POINT.TIME.",
    "SAN-BKP-002": "The repositories for backups are in /etc/sanctl/backup.toml on each storage "
    "node, put there by the playbook. There is none, several, or none of that name.",
    "SAN-BKP-003": "A backup reads a restore point's file, which is on nodes with a replica that "
    "was in sync.",
    "SAN-BKP-004": "A backup reads on a node that does not serve the device, so that hosts do not "
    "wait for its disks. On the one that serves it only if the command says so.",
    "SAN-BKP-005": "A restore point that is being deleted, or that another backup has made for "
    "itself, is not read.",
    "SAN-BKP-006": "Pruning keeps at least one backup of a device.",
    "SAN-BKP-007": "The restore point that was made for a backup could not be removed at its end. "
    "The pool agent of that node removes it.",
    "SAN-BKP-008": "One backup of a device is under way at a time on a node, and on all nodes one "
    "that makes its own restore point, for-backup-... . What a backup leaves that broke off is "
    "removed by the pool agent of its node. An archive that another node has written and not yet "
    "given its name is left alone for a week; no backup of its device is pruned meanwhile.",
    "SAN-BKP-009": "The file of the restore point cannot be read on this node.",
    "SAN-BKP-010": "There is no repository at that place, or what is there is none: a filesystem "
    "may not be mounted. None is made by itself.",
    "SAN-BKP-011": "The passphrase of the repository is not the one that this node has for it, or "
    "the file with it is missing, or others can read it.",
    "SAN-BKP-012": "Somebody else is writing to the repository, or has been lost while doing so.",
    "SAN-BKP-013": "There is no room left in the repository. What is in it is whole.",
    "SAN-BKP-014": "The server with the repository cannot be reached, its host key is not known or "
    "has changed, it does not let this node in, or it has no borg.",
    "SAN-BKP-015": "borg failed, for a reason that is none of the others.",
    "SAN-BKP-016": "The repository has no whole backup of that name.",
    "SAN-BKP-017": "The repository has a backup of that restore point.",
    "SAN-BKP-018": "There is a repository at that place already.",
    "SAN-BKP-019": "Backups are stored by borg, the package borgbackup.",
    "SAN-BKP-020": "What is read from a backup is not what was read from the device: the digests "
    "differ. A device that was to be restored from it lets no host in.",
    "SAN-BKP-021": "borg neither took nor gave anything for an hour, as where a filesystem or a "
    "server hangs, and was ended. No backup was made; a restore is tried again.",
    "SAN-BKP-022": "By its time a backup is newer than ones that were made after it, or than now: "
    "a clock was ahead. 'sanctl backup prune' neither counts nor deletes it.",
    "SAN-BKP-023": "While a backup with --skip-elsewhere waited for its turn this node came to "
    "serve the device, or its replica went out of sync. The other nodes' commands have ended long "
    "ago, as this node was the one to read: so none of them has made the backup.",
    "SAN-BKP-024": "A backup that was to go is the one that a device of this cluster is being "
    "filled from, so it stays until that has ended.",
    "SAN-BKP-025": "A backup broke off: it was killed, its node died, or it could not tell the "
    "cluster what it ended with. What it has sent need not be sent again.",
    "SAN-BKP-026": "An entry of sanctl_backups in the inventory makes no timer for backups: its "
    "device, calendar event, repository, counts or wait are wrong, or storage nodes differ in it.",
    "SAN-BKP-030": "borg notes on each node where a repository is, and goes on with one that is at "
    "another place only once somebody has said that it was moved.",
    "SAN-BKP-031": "Backups that would go are of a device that this cluster does not have: one "
    "that was deleted, or one of that name of another cluster, which may keep more of them.",
    "SAN-BKP-032": "borg on this node could not read its cache of the repository, as after a loss "
    "of power. It is removed and made anew by itself, once for each command.",
    "SAN-BKP-033": "A repository in a pool is lost with the pool, as the devices are whose backups "
    "it has, and takes room that devices were promised. None is made there.",
    "SAN-CLONE-001": "A device that is made from a restore point has the size that the restore "
    "point's device had then.",
    "SAN-CLONE-002": "A restore point that is being deleted, or whose device is, is not the origin "
    "of a new device.",
    "SAN-CLONE-003": "A clone shares the blocks of a restore point, so it is in the pool of that.",
    "SAN-CLONE-004": "A clone begins on a node that has the restore point: only that data may be "
    "declared good. Replicas on other nodes are filled by a resync from there.",
    "SAN-CLONE-005": "Until a clone is served for the first time its replicas are made from the "
    "files of the restore point, so these stay.",
    "SAN-CLONE-006": "The replica of a clone could not be made on a node: the file of the restore "
    "point is gone, its end is missing, its disk does not answer, or the pool is full. Nothing "
    "takes its place: the replica is not started there, and the clone is not served.",
    "SAN-CLONE-007": "The parameter `origin` of a device in the CIB cannot be read by this "
    "release. The replica is not started, as an empty file would pass for a copy of the restore "
    "point.",
    "SAN-CLONE-008": "A node of an older release does not know that a device is made from a "
    "restore point or a backup: its replica would be empty, and pass for a copy, or hosts be let "
    "in too early. All nodes need the same release first.",
    "SAN-EXP-001": "A restore point is exported on a node that has a file of it.",
    "SAN-EXP-002": "A restore point is exported on a node that does not serve its device, so that "
    "hosts do not wait for the disks that the backup host reads. On the one that serves it only "
    "if the command says so.",
    "SAN-EXP-003": "An export names who may log in: initiators or hosts.",
    "SAN-EXP-004": "A node exports up to 31 restore points: so many port numbers are no device's.",
    "SAN-EXP-005": "The node does not export that restore point. An export is on one node, and "
    "ends when that stops.",
    "SAN-EXP-006": "The file of the restore point is not on this node, though the cluster says so, "
    "or its end is missing. Nothing was exported.",
    "SAN-EXP-007": "One command at a time exports on a node, or ends an export.",
    "SAN-EXP-008": "A restore point was deleted while a node exports it, and another one has its "
    "name. The target has the earlier one's data until the export ends; the later one is exported "
    "after that.",
    "SAN-HOOK-001": "A hook is named by the file name of a program in /etc/sanctl/hooks.d. It may "
    "keep an application quiet for 5 to 45 seconds.",
    "SAN-HOOK-002": "A hook runs as root on the node that serves the device. Its file is missing "
    "there, is not executable, is a link, or others than root could change it or a folder above "
    "it. Nothing was run.",
    "SAN-HOOK-003": "The hook failed before a restore point. Its run after the point followed, as "
    "it may have made the application quiet already.",
    "SAN-HOOK-004": "The hook did not end in its time before a restore point, and was killed on "
    "the node. Its run after the point followed. What it had begun elsewhere, by ssh, may go on.",
    "SAN-HOOK-005": "The hook failed after a restore point, or did not end in its time, twice: the "
    "application may still be quiet. Applications that end that by themselves need no help.",
    "SAN-HOOK-006": "An application was not kept quiet until all replicas were copied: the time of "
    "the hook was over, or what kept it quiet was ended. The copies are as after a power cut.",
    "SAN-HOOK-007": "systemd could not run the unit of a hook, sanctl-point-hook@DEVICE.service. A "
    "node of a release without hooks does not have it.",
    "SAN-HOOK-008": "The hook of an earlier restore point of the device, or of a group with it, "
    "failed after it, on this node: the application may still be quiet. No hook begins before that "
    "one has succeeded: each later restore point with a hook runs it again first. See to the "
    "application, and to why the hook fails (journalctl -t sanctl-hook); its file has to be there. "
    "A boot of the node forgets it.",
    "SAN-REST-001": "Hosts are logged in to a device that is to go back to a restore point, or a "
    "node does not say which are. A host that has it mounted would write what it remembers over "
    "what comes back. Sessions are published about every ten seconds.",
    "SAN-REST-002": "A restore point's data is read on the node that serves the device, and that "
    "node has none of it: its replica was not in sync when it was made, or is younger, or the file "
    "is gone.",
    "SAN-REST-003": "The restore point is gone, is being deleted, or is larger than the device.",
    "SAN-REST-004": "A restore begins on a device that one node serves, and that is not being "
    "moved.",
    "SAN-REST-005": "A device that goes back to a restore point is not grown, its number of "
    "replicas is not changed, no restore point of it is made, and neither the one that it goes "
    "back to nor the one that keeps what it held is deleted. It can be moved, and deleted.",
    "SAN-REST-006": "Another command gave another order to restore the device, or the order is "
    "gone.",
    "SAN-REST-007": "The order to restore a device was given up before anything was written: hosts "
    "were not kept out everywhere, or what the device held was not kept, within three minutes; or "
    "'device restore --cancel' withdrew it.",
    "SAN-REST-008": "The node that serves the device cannot read the restore point's file, or "
    "cannot write the device. Hosts are kept out, and each monitor lets it try again.",
    "SAN-REST-009": "What comes back is written to new blocks, as the present ones are shared with "
    "restore points, and the pool may have too little room for that.",
    "SAN-REST-010": "The order to restore a device was written by another release of sanctl, and "
    "cannot be read. No host is let in.",
    "SAN-REST-011": "The restore point that a device is to go back to is not on all of its nodes. "
    "If the node that serves it fails before the end, one without the restore point cannot go on, "
    "and no host gets in. The operator may accept that.",
    "SAN-REST-012": "A replica is not in sync, so what is on the device before a restore would be "
    "kept on fewer nodes than the device has, and lost with those. The operator may accept that. "
    "Where it was lost after the order, nothing was written, and hosts are let in again.",
    "SAN-REST-013": "A restore is withdrawn only until the device is overwritten: from then on it "
    "may hold parts of two states, which no host may see. Nor is one that was ordered while a node "
    "had noted a newer hold than the CIB: the device may hold them before.",
    "SAN-REST-014": "A device is held as a copy at a second site: no host is let in, and what "
    "would change it, but for a later copy, is refused. Letting hosts in ends that.",
    "SAN-REST-015": "The CIB is older than what a node has noted of a device that was held as a "
    "copy at a second site: what is on the device is not known, and a node that is not there yet "
    "may know more. No order of that CIB is carried out or withdrawn. The operator may let hosts "
    "in to the device all the same.",
    "SAN-REST-016": "A device is held as a copy at a second site, and a failback without --hold "
    "and --takeover would let hosts in at its end, while the other device may still go on. The "
    "operator may accept that.",
    "SAN-REST-017": "A device is held as a copy at a second site, and another device goes on "
    "instead of it, or may do, as the turn of the roles has broken off: hosts of both would write, "
    "and one of two versions be given up. A takeover back or a giveback ends that; the operator "
    "may accept it.",
    "SAN-REST-018": "What is on a device is not known, as the CIB is older than what a node has "
    "noted beside its data (SAN-HLT-170): it may be half of a copy at a second site. So it is not "
    "kept by a restore point or a backup, nothing older goes in its favour, its shape stays, and "
    "it takes over no other device.",
    "SAN-REST-019": "A node with a running replica has not published its state, so it is not "
    "known whether it has noted a hold that the CIB does not know of. An order that is given "
    "without that, and given up, would let hosts in to whatever is on the device. Of a device of "
    "which a hold is known, nothing that was ordered begins or ends either, and nothing is pruned.",
    "SAN-SCHED-001": "A schedule of restore points is a list of rules, separated by commas: an "
    "interval (15m, 1h, 1d, 2w) and how many to keep, such as 15m keep 8, 1h keep 24.",
    "SAN-SCHED-002": "A rule of a schedule cannot be kept: its interval is below a minute or above "
    "52 weeks, it keeps none, or another rule has the same interval.",
    "SAN-SCHED-003": "What schedules keep, and restore points that no schedule removes, would be "
    "more than a device (64) or all devices (256) may have.",
    "SAN-SCHED-004": "A restore point that a schedule was making was not kept: meanwhile the "
    "schedule or the device had changed, or another node had made it.",
    "SAN-SCHED-005": "Only a device with a schedule has restore points that are removed by rule.",
    "SAN-SCHED-006": "Several devices have a schedule together, so that their restore points are "
    "of the same moments. It is changed or ended for all of them at once, and is the same for all.",
    "SAN-SITE-001": "A site's name, the address of its server or a path is not written as it has "
    "to be; or a command was to change a site, and not told what.",
    "SAN-SITE-002": "The cluster has no second site of that name.",
    "SAN-SITE-003": "The cluster has a second site of that name already.",
    "SAN-SITE-004": "A node logs in to a site's server with a private key, and does not have it. "
    "Nothing was changed.",
    "SAN-SITE-005": "The server of a second site cannot be reached by ssh, or the connection "
    "ended. What was proven there stays; the next run begins anew.",
    "SAN-SITE-006": "The directory of a second site is not there, is another one than the one that "
    "was added (its filesystem may not be mounted), is not empty, or its filesystem cannot share "
    "blocks between files. Nothing was written.",
    "SAN-SITE-007": "The second site has no room for a copy. What was proven there stays, but for "
    "what is beyond the number of copies that are to be kept.",
    "SAN-SITE-008": "The two ends of a connection to a second site did not understand each other, "
    "or data did not come as it was sent. What came is no copy.",
    "SAN-SITE-009": "A restore point and its copy at a second site have different digests, or what "
    "they belong to is gone. It does not count as a copy unless the message says so.",
    "SAN-SITE-010": "A copy for a second site is read from a standby replica, so that hosts do not "
    "wait for it.",
    "SAN-SITE-011": "Only a replica that is in sync gets a restore point, and so can be sent to a "
    "second site.",
    "SAN-SITE-012": "The CIB's entry of a second site is not as this release of sanctl writes it.",
    "SAN-SITE-013": "What lies at a second site was written by a release of sanctl with another "
    "format. It is left alone.",
    "SAN-SITE-014": "A file could not be read or written, here or at the second site.",
    "SAN-SITE-015": "The server of a second site shows another key than it should: it may not be "
    "that server. Nothing was sent.",
    "SAN-SITE-016": "A later run has begun to copy the same device to the same site, and this one "
    "has ended without a copy.",
    "SAN-SITE-017": "A copy at a second site, or a device that was filled from it, does not have "
    "the digest that was noted when the copy was proven. No host is let in to such a device.",
    "SAN-SITE-018": "A second site has no such copy, or has it no more.",
    "SAN-SITE-019": "Several copies at a second site may be meant: devices of one name, of this "
    "cluster or another one, each have theirs; or the times of a device's copies disagree, as they "
    "do where a node's clock is wrong. Nothing was changed.",
    "SAN-SITE-020": "A copy at a second site is larger than the device that is to hold it.",
    "SAN-SITE-021": "Another device, made from a copy of this one, has taken it over at the second "
    "site. No copy of this one is made or removed there, and no third device takes it over unless "
    "the one that has is named.",
    "SAN-SITE-022": "Only a device that was made from a copy at a second site, or put back to one, "
    "takes over the device that was copied.",
    "SAN-SITE-023": "A device awaits its second sites after a restart of the whole cluster, and "
    "keeps hosts out now, or no node says that it does not. Nothing was changed.",
    "SAN-SITE-024": "A site is not removed while a device awaits it after a restart of the whole "
    "cluster: no host would be let in again by itself.",
    "SAN-SITE-025": "A storage node has a release of sanctl that does not keep hosts out of a "
    "device that awaits its second site, says nothing of it, or cannot tell one start of Pacemaker "
    "from another. Such a device gets no replica there, and none is set to await a site. Nothing "
    "was changed.",
    "SAN-SITE-026": "A second site has answered, but a minute or more after it was asked: the "
    "device may have been taken over since. It is asked again all the time.",
    "SAN-SITE-027": "A second site has a complete moment of a group with a device that the command "
    "does not name. Until it is said that the device has left the group, moments with it stay.",
    "SAN-SITE-028": "A device is copied to a second site together with others, and the copy that "
    "was meant is of no moment of which the site has copies of all of them. With --allow-mix it is "
    "taken all the same: what the devices then hold may not belong together.",
    "SAN-SITE-029": "Devices that were made from copies at a second site, and belong together, "
    "would be of several moments, or one of them is missing: a database whose data and log are on "
    "two devices does not survive that. Nothing was changed.",
    "SAN-SITE-030": "The copies of a group at a second site are not all of the moment that was to "
    "be made: that moment is not complete, and does not count. The one before stays.",
    "SAN-SITE-031": "Devices are copied to a second site together by a schedule, and another group "
    "with one of them was to take its place.",
    "SAN-SITE-033": "While 'sanctl replicate release' waited for an answer, the site said that "
    "the device was taken over: the question had not said so. Nobody was let in.",
    "SAN-SITE-034": "The rollout has set the server of a second site up so that the key of a node "
    "runs the receivers of its list alone, and what this node sent is not one of them: it has "
    "another release than the server was set up for. Nothing was done there.",
    "SAN-SITE-035": "What a second site has noted of a copy cannot be read: it is damaged, or of a "
    "later release of sanctl. That copy may be the newest one, so none is taken in its place "
    "unasked, and none of the device is removed. Or the folder of the device's copies cannot be "
    "read there, as of a damaged disk: then none of them is known. Others are not concerned.",
    "SAN-SITE-036": "A device that is to take over was made from a copy that is not the newest one "
    "at the site: what hosts wrote up to the newer one would be given up.",
    "SAN-SITE-037": "A second site does not have the copy that was proven there last: its storage "
    "may have gone back to an older state, or somebody has removed it. What it has is older, and "
    "none of it is taken unasked.",
    "SAN-SITE-038": "A takeover is noted in the directory of a second site to which the other "
    "cluster copies, and the site has no copy of that device: it may be another directory, in "
    "which the other cluster never looks. Then both would go on. Nothing was noted.",
    "SAN-SITE-039": "A site is not removed while it says that another device has taken over one of "
    "this cluster: with the site goes all that tells of the takeover, SAN-HLT-116 among it, and "
    "hosts may write to both. To be accepted only where it is known who goes on.",
    "SAN-SITE-040": "A node is making a copy of the device at that site. Another run would take "
    "its place there, and what was sent so far, in days maybe, would be thrown away. To be "
    "accepted only where it is of no use.",
    "SAN-SNAP-001": "The pool's filesystem cannot share blocks between files, so its devices have "
    "no restore points. XFS can, unless it was made with reflink=0; ext4 cannot.",
    "SAN-SNAP-002": "Copying the data file of a replica, and comparing it with its copy while "
    "hosts' writes wait, takes time for each of its extents. The file has too many of them.",
    "SAN-SNAP-003": "After a restore point the blocks of a device are shared with it, and each "
    "write of a host to one of them needs a new block. The pool has too little room for that: a "
    "write that finds no block would cost the replica.",
    "SAN-SNAP-004": "The node that serves the device and a node with another replica could not "
    "talk to each other about a restore point, over the sync network, TCP port 7799. Nothing is "
    "kept of a restore point that not every replica in sync takes part in.",
    "SAN-SNAP-005": "No restore point was made, because the state of the device changed meanwhile "
    "or does not allow one: it is not served from a good replica, or a replica was lost.",
    "SAN-SNAP-006": "The order for a restore point was withdrawn or replaced before the restore "
    "point was there, so it was not made. Or the device is larger than the configuration says.",
    "SAN-SNAP-007": "The replicas could not be copied within half a second, and hosts' I/O is not "
    "held any longer. No restore point was made.",
    "SAN-SNAP-008": "A restore point is named as DEVICE@POINT.",
    "SAN-SNAP-009": "The device has no restore point of that name.",
    "SAN-SNAP-010": "The device has a restore point of that name already.",
    "SAN-SNAP-011": "A device has at most 64 restore points, all devices together 256; "
    "those that wait to be removed on a node that is away do not count, up to 512 in all.",
    "SAN-SNAP-012": "One restore point of a device is made at a time.",
    "SAN-SNAP-013": "A device that has restore points is deleted only if the command says that "
    "they may go as well.",
    "SAN-SNAP-014": "A restore point's file is beside a replica, and goes with that. Restore "
    "points that no other node has would be lost.",
    "SAN-SNAP-015": "While hosts wait, DRBD 9 is asked by netlink how the replicas are, and it did "
    "not answer on that node.",
    "SAN-SNAP-016": "Restore points of several devices at one moment are made of 2 to 8 devices.",
    "SAN-SNAP-017": "Restore points of several devices at one moment are made by the one node "
    "that serves all of them.",
    "SAN-SNAP-018": "The restore points of a group are made together, or none is: one device's "
    "process did not get as far as the others in time. Hosts were not held up longer.",
    "SAN-SNAP-019": "Restore points and clones in one pool are checked for room one after the "
    "other, and each counts what the others were granted. That could not be read or noted on the "
    "node, as where /run is full: nothing was made.",
    "SAN-SNAP-020": "The restore point was deleted and another one made under its name since the "
    "command was given. Nothing was deleted, and no device went back to it.",
    "SAN-SNAP-021": "The blocks of a restore point's file were compared with those that the data "
    "file had while hosts' I/O was held back, and are others. Nothing was kept; this is an error "
    "of sanctl or of the kernel.",
}
