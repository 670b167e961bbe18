# SPDX-License-Identifier: GPL-2.0-or-later
"""The promotion scores, and what is taken off them: one scale, so that one table shows who wins.

Pacemaker adds up an instance's own score and those of the constraints, and promotes the highest sum
that is not negative. The distances are what matters:

* PRIMARY - UP_TO_DATE (1000) is what a device stays where it is for: above any preference (100), so
  that a node's return moves nothing.
* UNREACHED_PENALTY (1500) is above that, so that a device leaves a node that hosts cannot reach for
  one with the same data; and below PRIMARY - ALONE (2000), so that it never leaves for a replica
  that is out of contact and may be behind.
* CONSISTENT and NEW are above the penalty: a device that only one node can serve is served there
  even if that node is not reached. The watch may be wrong; no service is certain.
"""

#: The Primary with a good disk: stays where it is.
PRIMARY = 10_000
#: UpToDate and in contact with an UpToDate peer or a peer it knows to be behind.
UP_TO_DATE = 9_000
#: UpToDate as far as it knows, but out of contact: the peer may be further.
ALONE = 8_000
#: Consistent: was UpToDate when it was last seen, promotion has to be cleared by the handler.
CONSISTENT = 3_000
#: New and empty on both sides.
NEW = 2_000

#: Taken off on a node that says that it reaches no host.
UNREACHED_PENALTY = 1_500
#: Added on the node an administrator prefers.
PREFERENCE = 100
