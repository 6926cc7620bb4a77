"""Transactions by socket: who asks the coordinator, what it sends, and what is answered."""
