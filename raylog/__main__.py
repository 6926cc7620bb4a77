"""The command ``raylog``, also as ``python -m raylog``.

Python answers a signal with a traceback where no command is there to catch it: while the modules
are imported, and while the process ends. Here a signal ends the process there, without a word.
"""

import signal
import sys
from contextlib import suppress


def main() -> None:
    """The console entry point."""
    python_answers = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if python_answers:  # else a shell has it ignored, as for its jobs in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from raylog.cluster.cli.main import main as run

    try:
        if python_answers:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    finally:
        _end_on_signals()


def _end_on_signals() -> None:
    """From now on a signal ends the process, as where nobody has set a handler.

    A command's handler raises an error, here in the midst of what Ray does at the end.
    """
    with suppress(OSError):  # else Python tells of it at the end
        sys.stdout.flush()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):  # one that is ignored stays so
            signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main()
