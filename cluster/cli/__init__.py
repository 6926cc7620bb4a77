"""The ``raylog`` command.

Each command imports what it needs when it runs, so that ``--help`` is quick.
"""
