"""How the leader of a classic group divides partitions among members: Kafka's four assignors."""
