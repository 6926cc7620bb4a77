"""The command ``raylog``, also as ``python -m raylog``.

Python answers Ctrl-C with a traceback where no command is there to catch it: while the modules are
imported, and while the process ends. Here Ctrl-C ends the process there, without a word.
"""

import signal


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
        if python_answers:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
