"""Running the application: a socket, uvicorn, and a stop that finishes what was begun."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

_GRACE = 5  # seconds, besides the time limit of requests, for answers to be sent


class _PoliteServer(uvicorn.Server):
    """Says when it is ready, and leaves the process alone when it has stopped."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.ready, self.stopped_by = ready, 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM stop it; a second Ctrl-C does not wait for what is being done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        watched = signal.set_wakeup_fd(-1)  # of what leaves the process where Ctrl-C seems not to be noticed
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(watched, warn_on_full_buffer=False)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and number == signal.SIGINT
        self.should_exit = True
        self.stopped_by = number


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; ``OSError`` where that cannot be."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    # With its protocol named: else asyncio leaves Nagle's algorithm on, which costs an answer 40 milliseconds.
    listening = socket.socket(family, kind, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(512)
    except BaseException:
        listening.close()
        raise
    return listening


def address_of(listening: socket.socket) -> str:
    """Where browsers find it."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(app: FastAPI, listening: socket.socket, ready: Callable[[], None]) -> int:
    """Serve until a signal comes; its number, or 0 where the server ended by itself.

    New requests are then refused, and those that have come are answered.
    """
    seconds = app.state.service.limits.time_limit
    settings: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False, "lifespan": "on"}
    settings |= {"timeout_graceful_shutdown": int(seconds) + _GRACE, "ws": "none"}
    server = _PoliteServer(uvicorn.Config(app, **settings), ready)
    server.run([listening])
    return server.stopped_by
