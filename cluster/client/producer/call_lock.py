"""The lock of a producer, for which no thread waits while it holds it.

A signal handler runs in the middle of whatever the main thread does, and a finalizer in the middle
of whatever made the garbage collector run. If such code uses the producer whose call it interrupts,
a ``threading.Lock`` makes the thread wait for itself, for ever; an RLock lets it in while something
is half changed. This lock raises ReentrantCall, as Python's buffered files do. Both locks are
entered by ``with``::

    with lock.thread, lock.alone():
        ...

``thread`` is an RLock, which keeps other threads out. Whoever holds it and finds the inner lock
taken took that lock further out. Each is taken and given back in one step of the interpreter. So a
signal always finds either both locks as its thread left them, or nothing half changed; and one that
raises leaves no lock behind.
"""

import threading

from raylog.actors.errors import ReentrantCall


class CallLock:
    """One call at a time: other threads wait, and the same thread is refused.

    ``whose``: what the error names.
    """

    def __init__(self, whose: str) -> None:
        self.thread = threading.RLock()
        self._change = threading.Lock()
        self._whose = whose

    def alone(self) -> threading.Lock:
        """The inner lock, for a thread that holds ``thread``. Raises ReentrantCall."""
        if self._change.locked():
            raise ReentrantCall(self._whose)
        return self._change

    def check(self) -> None:
        """Raise ReentrantCall where this thread holds the lock, so that it may not wait."""
        with self.thread:
            self.alone()
