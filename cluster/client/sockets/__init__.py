"""Requests of raylog's own clients by the sockets of LogActors."""
