# SPDX-License-Identifier: BSD-3-Clause
"""What a failed monitored_barrier says: gloo's words, which programs look for, and the library's."""
import re
from typing import List

from ..errors import Error, PeerLostError, TimeoutError  # pylint: disable=redefined-builtin

_NAMED = re.compile(r"(\d+) \(host")  # in the library's texts, a rank that failed


def _of_rank_0(ranks: List[str], limit: int, wait_all_ranks: bool) -> str:
    if limit <= 1:  # as short as it can be: nobody had the time to come
        return f"[Rank 0]: Rank 0 timed out in monitoredBarrier after {limit} ms."
    if wait_all_ranks and len(ranks) > 1:
        return f"[Rank 0]: Ranks {', '.join(ranks)} failed to pass monitoredBarrier in {limit} ms"
    return f"[Rank 0]: Rank {ranks[0]} failed to pass monitoredBarrier in {limit} ms"


def told(error: Error, rank: int, limit: int, wait_all_ranks: bool) -> Error:
    """The same failure, as gloo tells it on rank 0 and on the others, with the library's text below."""
    ranks = sorted(set(_NAMED.findall(str(error))), key=int)
    if not ranks or not isinstance(error, (PeerLostError, TimeoutError)):
        return error
    if rank == 0:
        words = _of_rank_0(ranks, limit, wait_all_ranks)
    else:
        words = (
            f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting "
            "for send/recv from rank 0. Please check rank 0 logs for faulty rank."
        )
    return type(error)(f"{words}\n Original exception: \n{error}")
