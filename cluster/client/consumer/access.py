"""Who may call a consumer: a thread at a time, of the process that made it, until it is closed."""

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from raylog.actors.errors import ConsumerBusy, ConsumerClosed, ForkedProcess
from raylog.storage.errors import RaylogError

T = TypeVar("T")


class Access:
    """The lock of one consumer."""

    def __init__(self, keep: Callable[[], None], begin_again: Callable[[], None]) -> None:
        """``keep``: the user has what a call took out. ``begin_again``: nobody got it."""
        self.is_closed = False
        self._is_ending = False  # the user's functions may still call it, in the thread that closes
        self._keep, self._begin_again = keep, begin_again
        self._lock, self._process = threading.RLock(), os.getpid()

    def call(self, method: Callable[[], T]) -> T:
        """Where it is interrupted (KeyboardInterrupt), nobody got what it took out.

        Raises ForkedProcess, ConsumerBusy, ConsumerClosed.
        """
        if self._process != os.getpid():
            raise ForkedProcess("consumer")
        if not self._lock.acquire(blocking=False):
            raise ConsumerBusy()
        try:
            self.check_open()
            answer = method()
            self._keep()
            return answer
        except RaylogError:
            raise
        except BaseException:
            self._begin_again()
            raise
        finally:
            self._lock.release()

    def check_open(self) -> None:
        """Raises ConsumerClosed: whoever waits in a call looks here when it is woken."""
        if self.is_closed and not self._is_ending:
            raise ConsumerClosed()

    def close(self, wake: Callable[[], None], forget: Callable[[], None]) -> None:
        """The last call; twice is once. A call of another thread ends first.

        ``wake`` has it look, if it waits. Raises ForkedProcess where that thread is the parent's.
        """
        if self._is_ending:
            return  # a function of the user's, which is called meanwhile, closes it again
        self.is_closed = True
        if not self._lock.acquire(blocking=False):
            if self._process != os.getpid():
                raise ForkedProcess("consumer")
            wake()
            self._lock.acquire()
        try:
            if self._process == os.getpid():  # else its requests are the parent's, and go on
                self._is_ending = True
                forget()
        finally:
            self._is_ending = False
            self._lock.release()
