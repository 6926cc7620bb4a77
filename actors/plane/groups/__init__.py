"""Answers requests of consumer groups, by asking the coordinator of this process."""
