"""Producer, consumer, and what they share: the way to a partition, and fetching of ranges."""
