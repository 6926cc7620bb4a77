"""The coordinator of transactions: a pure machine, and the shell that it lives in."""
