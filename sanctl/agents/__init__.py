"""What Pacemaker and DRBD call on a node."""
