# SPDX-License-Identifier: BSD-3-Clause
"""Collective communication: libdist for Python.

    import libdist as dist
    import numpy

    with dist.init_process_group() as group:
        x = numpy.full(4, group.rank, "float32")
        group.all_reduce(x)

Start the program with mpirun, torchrun, distrun or srun, or start its ranks from Python with
libdist.spawn. Calls release the interpreter's lock. dist.h and libdist(3) describe the operations.
"""
from ._header import ANY_SOURCE, VERSION as __version__
from .errors import (
    AbiError,
    AbortedError,
    AddressInUseError,
    Error,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    NoBackendError,
    NoMemoryError,
    PeerLostError,
    RendezvousError,
    SchedulerError,
    Status,
    SystemCallError,
    TimeoutError,
    UnsupportedError,
)
from .group import CreatedOp, Group, Op, batch, create_op, premul_sum
from .memory import empty
from .spawning import SpawnError, spawn
from .work import Work
from .world import flight_dump, group_from_comm, init_process_group, list_backends, version

SUM, AVG, PROD, MIN, MAX = Op.SUM, Op.AVG, Op.PROD, Op.MIN, Op.MAX
BAND, BOR, BXOR = Op.BAND, Op.BOR, Op.BXOR
