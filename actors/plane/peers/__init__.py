"""How the process of one partition asks that of another: by socket, never by Ray's calls."""
