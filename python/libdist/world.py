# SPDX-License-Identifier: BSD-3-Clause
"""Joins the world: by the launcher's variables, a URL, or an all-gather of the program."""
import ctypes
from typing import Any, List, Optional

from . import _header
from ._library import lib
from .arguments import bounded, milliseconds, text
from .errors import InvalidArgumentError, check
from .group import GatherFunction, Group


def _joined(parts: Any) -> bytes:
    try:
        return b"".join([parts] if isinstance(parts, bytes) else parts)
    except TypeError:
        raise InvalidArgumentError(f"all_gather: it returned {parts!r}, expected the bytes of each rank") from None


def _oob(gather: GatherFunction, ranks: int, failures: List[BaseException]) -> Any:
    def call(_: Any, given: int, out: int, size: int) -> int:
        try:
            parts = gather(ctypes.string_at(given, size))
            data = _joined(parts)
            if len(data) != ranks * size:
                raise InvalidArgumentError(
                    f"all_gather: it returned {len(data)} bytes, expected {size} from each of {ranks} ranks"
                )
            ctypes.memmove(out, data, len(data))
            return 0
        except BaseException as error:  # pylint: disable=broad-except  # C cannot propagate it
            failures.append(error)
            return 1

    return _header.dist_oob_all_gather_fn(call)


def init_process_group(
    backend: Optional[str] = None,
    init_method: Optional[str] = None,
    rank: int = -1,
    world_size: int = -1,
    local_rank: int = -1,
    timeout: Any = None,
    reproducible: bool = False,
    device: int = -1,
    stream: Optional[int] = None,
    all_gather: Optional[GatherFunction] = None,
) -> Group:
    """Joins the world, and returns the group of all ranks. Blocks until all ranks have joined.

    Arguments that are not given are read from the launcher's variables (torchrun, distrun, mpirun,
    srun, spawn); a process without a launcher is a world of one rank. timeout is in seconds, or a
    timedelta. all_gather, together with rank and world_size, replaces init_method: it is called
    with this rank's bytes and returns the bytes of all ranks, in order.
    """
    if all_gather and world_size < 1:
        raise InvalidArgumentError("all_gather: requires rank and world_size")
    failures: List[BaseException] = []
    gather = _oob(all_gather, world_size, failures) if all_gather else None
    options = _header.dist_options(
        size=ctypes.sizeof(_header.dist_options),
        backend=text(backend, "backend"),
        init_method=text(init_method, "init_method"),
        rank=bounded(rank, "rank"),
        world_size=bounded(world_size, "world_size"),
        local_rank=bounded(local_rank, "local_rank"),
        timeout_ms=milliseconds(timeout),
        # A cast is not used, because its result would keep `gather` in a reference cycle until
        # garbage collection.
        oob_all_gather=ctypes.c_void_p.from_buffer(gather).value if gather else None,
        reproducible=reproducible,
        device=bounded(device, "device"),
        stream=stream,
    )
    made = ctypes.c_void_p()
    status = lib.dist_init_process_group(ctypes.byref(options), ctypes.byref(made))
    if failures:
        raise failures[0]
    check(status)
    return Group(made.value)


def group_from_comm(comm: Any, **options: Any) -> Group:
    """Joins the ranks of an mpi4py communicator in a separate world. Collective over the
    communicator.
    """
    if not hasattr(comm, "allgather"):
        raise InvalidArgumentError(f"comm: {comm!r} is not an mpi4py communicator")
    return init_process_group(
        rank=comm.Get_rank(), world_size=comm.Get_size(), all_gather=comm.allgather, **options
    )


def list_backends() -> str:
    """Returns a line for each backend: its name, whether it can run here, and its description or
    the reason.
    """
    text = ctypes.create_string_buffer(65536)  # each call tries every module in a child process
    lib.dist_list_backends(text, len(text))
    return text.value.decode()


def version() -> str:
    """Returns the version of the loaded library."""
    return lib.dist_version().decode()


def flight_dump(path: Optional[str] = None) -> None:
    """Writes the last calls of each group to a file, for `dist_info flight`."""
    check(lib.dist_flight_dump(text(path, "path")))
