# SPDX-License-Identifier: GPL-2.0-or-later
"""Every promotion score's number (alone, in sync, ...), unreached nodes' penalty, preference.

Pacemaker adds up an instance's own score and those of the constraints, and promotes the highest sum
that is not negative. The distances matter:

* PRIMARY - UP_TO_DATE (1000) keeps a device on its node: the distance is above any preference
  (100), so that the return of a node moves nothing.
* FOLLOW (1250), of a device that follows a guest, is above both together: the device moves to where
  the guest runs.
* UNREACHED_PENALTY (1500) is above the first, so that a device leaves a node that hosts cannot
  reach for a node with the same data.
* PRIMARY - DISCONNECTED (4000) is above the last two and a preference together (2850), so that the
  device never moves to a replica that is disconnected and may be behind. So is the distance from
  CONSISTENT. It was 2000 in releases before there was FOLLOW.
* CONSISTENT and NEW are above the penalty: a device that only one node can serve is served there
  even if that node is not reached. The reach monitor may be wrong; without a Primary, no host is
  served for certain.
"""

#: The Primary with an UpToDate disk: the device stays there.
PRIMARY = 10_000
#: UpToDate, and connected to a peer that is UpToDate or known to be behind.
UP_TO_DATE = 9_000
#: UpToDate by its own state, but disconnected: the peer may have newer data.
DISCONNECTED = 6_000
#: Consistent: was UpToDate when last connected; the fence-peer handler has to allow a promotion.
CONSISTENT = 3_000
#: New and empty on all replicas.
NEW = 2_000

#: Subtracted on a node that reports that it reaches no host.
UNREACHED_PENALTY = 1_500
#: Added on the node an administrator prefers.
PREFERENCE = 100
#: Added on the node where the guest runs that the device follows (a colocation).
FOLLOW = 1_250
