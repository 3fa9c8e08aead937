"""What a process that runs a command needs before all else, and until its end: Ctrl-C, and closed standard streams."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

INTERRUPTED = 130
_PATIENCE = 3.0  # seconds for the main thread to notice a Ctrl-C
_DELAY = 0.2  # seconds by which the thread that watches may be late
_begun = False  # whether this process is a command
_IMPATIENCE = 1.0  # a second Ctrl-C within these is the same one: it must not interrupt the tidying up


def is_command() -> bool:
    """Whether this process was started as ``gpuparse`` or is being started by ``python -m``."""
    program = sys.argv[0] if sys.argv else ""
    return program == "-m" or os.path.basename(program).partition(".")[0] in {"gpuparse", "gpuparse-script"}


def begin() -> None:
    """While modules are imported, which takes seconds: Ctrl-C leaves at once, and files do not get the numbers of
    standard streams that were closed."""
    global _begun
    _begun = True
    _reserve_streams()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: _leave())


@contextmanager
def importing() -> Iterator[None]:
    """The same in a part of a command that imports modules: they may swallow what is raised in them."""
    if not _begun or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: _leave())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def open_streams() -> None:
    """Give ``sys`` the standard streams that were closed: to read or to write them fails, but for stderr."""
    _reserve_streams()
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def _reserve_streams() -> None:
    for number, access in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, access), True)  # the lowest number there is: this one


def end() -> None:
    """All is done and said: a Ctrl-C that comes while Python takes itself apart changes nothing."""
    if _begun and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it, Ctrl-C raises ``KeyboardInterrupt`` once, whatever Python is doing.

    One that is raised where nothing can catch it is raised again. Where the main thread does not notice for three
    seconds, for it is deep in a computation, the process is left with 130.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    state = _Startup()
    hook = sys.unraisablehook
    before = signal.signal(signal.SIGINT, state.interrupt)
    sys.unraisablehook = lambda given: state.again() if _is_interrupt(given.exc_type) else hook(given)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    old = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=state.watch, args=(reading,), daemon=True, name="ctrl-c").start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(old)
        os.close(writing)  # which ends the thread
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)


class _Startup:
    """What has become of the last Ctrl-C."""

    def __init__(self) -> None:
        self.last = float("-inf")  # when one was taken for a new one, or for the same again
        self.noticed = float("-inf")  # when the handler was run

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        now = time.monotonic()
        recent = now - self.last < _IMPATIENCE
        self.last = self.noticed = now
        if not recent:
            raise KeyboardInterrupt

    def again(self) -> None:
        """It was raised in vain: once more, when what cannot be interrupted is over."""
        self.last = float("-inf")
        threading.Timer(_DELAY, _interrupt).start()

    def watch(self, reading: int) -> None:
        """Leave if the handler is not run in time."""
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while data := pipe.read(1):
                came = time.monotonic()
                if data[0] == signal.SIGINT:
                    while self.noticed < came - _DELAY:
                        if time.monotonic() - came > _PATIENCE:
                            _leave()
                        time.sleep(0.05)


def _interrupt() -> None:
    """A Ctrl-C for the main thread."""
    if hasattr(signal, "pthread_kill"):  # which also wakes it up
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _is_interrupt(kind: type[BaseException] | Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, KeyboardInterrupt)


def _leave() -> NoReturn:
    with suppress(OSError):
        os.write(2, b"gpuparse: interrupted\n")
    os._exit(INTERRUPTED)
