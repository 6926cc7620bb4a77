"""``python -m raylog`` is the ``raylog`` command."""

from raylog.cluster.cli.main import main

main()
