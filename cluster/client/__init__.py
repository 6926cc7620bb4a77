"""Producer, consumer, and what they share: the transport to a partition and the fetching of
ranges."""
