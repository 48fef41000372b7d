# SPDX-License-Identifier: BSD-3-Clause
"""Threads in which futures complete: functions chained to a future may block, as in DDP's PowerSGD
hook.
"""
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

# Maximum number; a thread is added whenever all existing ones are blocked.
_THREADS = 1000


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "libdist")


class _Threads:
    """The pool of threads. The interpreter ends it at exit; a forked child creates its own."""

    pool = _pool()


def _forked() -> None:
    _Threads.pool = _pool()


os.register_at_fork(after_in_child=_forked)


def call_soon(function: Callable[..., None], *arguments: Any) -> None:
    """Calls a function soon in another thread, or immediately if the interpreter is about to exit.
    """
    try:
        _Threads.pool.submit(function, *arguments)
    except RuntimeError:
        function(*arguments)


def before_exit(function: Callable[[], None]) -> None:
    """Registers a function to be called at exit, before the interpreter waits for these threads."""
    threading._register_atexit(function)
