"""A consumer as a member of a group: who reads which partitions, and how far the group has read."""
