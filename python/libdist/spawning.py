# SPDX-License-Identifier: BSD-3-Clause
"""Starts ranks on this machine, like torch.multiprocessing.spawn."""
import multiprocessing
import multiprocessing.connection
import os
import socket
import sys
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple

from .arguments import bounded
from .errors import InvalidArgumentError


class SpawnError(RuntimeError):
    """A rank failed: `rank` and its `exitcode`; the message contains its traceback."""

    def __init__(self, rank: int, exitcode: Optional[int], text: str):
        super().__init__(f"rank {rank} {text}")
        self.rank = rank
        self.exitcode = exitcode


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _environment(rank: int, ranks: int, port: int) -> Dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _cut(text: str, most: int = 16000) -> str:
    """Shortens a text to the size that fits into a pipe, which is read only after this process
    exits.
    """
    if len(text) <= most:
        return text
    return f"{text[:most // 2]}\n[...]\n{text[-(most // 2):]}"


def _flush() -> None:
    """Flushes the output, which os._exit would discard."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # pylint: disable=broad-except  # None, closed, or the reader has exited
            pass


def _run(function: Callable[..., Any], rank: int, args: Tuple, env: Dict[str, str], tell: Any) -> None:
    os.environ.update(env)
    try:
        function(rank, *args)
    except Exception:  # pylint: disable=broad-except  # the parent raises it
        tell.send(_cut(traceback.format_exc()))
        _flush()
        os._exit(1)  # skips waiting for other ranks in threads of the library


def _why(process: Any, pipe: Any) -> str:
    if pipe.poll():
        try:
            return "raised\n\n" + pipe.recv()
        except EOFError:
            pass
    code = process.exitcode
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _end(processes: List[Any]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def spawn(
    function: Callable[..., Any],
    args: Tuple = (),
    nprocs: int = 1,
    grace: float = 2.0,
) -> None:
    """Runs function(rank, *args) in `nprocs` new processes, and blocks until all have ended.

    Each process joins the world with init_process_group(). If one fails, the other processes have
    `grace` seconds to notice, are then terminated, and SpawnError contains the rank that failed
    first and its traceback. The function must be importable from a module; it cannot be defined in
    an interactive session.
    """
    if not callable(function):
        raise InvalidArgumentError(f"function: {function!r} is not callable")
    if bounded(nprocs, "nprocs") < 1:
        raise InvalidArgumentError(f"nprocs: {nprocs} is less than 1")
    context = multiprocessing.get_context("spawn")
    port = _free_port()
    processes, pipes = [], []
    try:
        for rank in range(nprocs):
            pipe, theirs = context.Pipe(False)
            env = _environment(rank, nprocs, port)
            process = context.Process(target=_run, args=(function, rank, args, env, theirs))
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(pipe)
        _watch(processes, pipes, grace)
    finally:
        _end(processes)


def _watch(processes: List[Any], pipes: List[Any], grace: float) -> None:
    left = dict(enumerate(processes))
    while left:
        multiprocessing.connection.wait([process.sentinel for process in left.values()])
        for rank, process in list(left.items()):
            if process.exitcode is None:
                continue
            del left[rank]
            if process.exitcode != 0:
                for other in left.values():
                    other.join(grace / len(left))
                raise SpawnError(rank, process.exitcode, _why(process, pipes[rank]))
