# SPDX-License-Identifier: BSD-3-Clause
"""Threads in which futures end: what is chained to one may block, as PowerSGD's hook does in DDP."""
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

# One more is made when all of them are blocked.
_THREADS = 1000


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "libdist")


class _Tellers:
    """Ended by the interpreter before it ends itself; a forked child makes its own."""

    pool = _pool()


def _forked() -> None:
    _Tellers.pool = _pool()


os.register_at_fork(after_in_child=_forked)


def tell(function: Callable[..., None], *arguments: Any) -> None:
    """Calls it soon, in another thread; at once where the interpreter is about to end."""
    try:
        _Tellers.pool.submit(function, *arguments)
    except RuntimeError:
        function(*arguments)


def before_exit(function: Callable[[], None]) -> None:
    """Calls it as the interpreter ends, before it waits for these threads."""
    threading._register_atexit(function)
