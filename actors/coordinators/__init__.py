"""Coordinators of groups and transactions: they live in the LogActors of internal topics."""
