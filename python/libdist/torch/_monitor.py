# SPDX-License-Identifier: BSD-3-Clause
"""Messages of a failed monitored_barrier: gloo's, which programs search for, then the library's."""
import re
from typing import List

from ..errors import Error, PeerLostError, TimeoutError  # pylint: disable=redefined-builtin

_NAMED = re.compile(r"(\d+) \(host")  # a failed rank in the library's messages


def _of_rank_0(ranks: List[str], limit: int, wait_all_ranks: bool) -> str:
    named = f"Ranks {', '.join(ranks)}" if wait_all_ranks else f"Rank {ranks[0]}"
    return f"[Rank 0]: {named} failed to pass monitoredBarrier in {limit} ms"


def with_gloo_text(error: Error, rank: int, limit: int, wait_all_ranks: bool) -> Error:
    """Returns the failure with gloo's message in front of the library's.

    gloo has one message for rank 0 and one for the other ranks.
    """
    ranks = sorted(set(_NAMED.findall(str(error))), key=int)
    if not ranks or not isinstance(error, (PeerLostError, TimeoutError)):
        return error
    cause = str(error)
    if rank == 0:
        words = _of_rank_0(ranks, limit, wait_all_ranks)
        if limit <= 1:  # the shortest timeout: no rank can have arrived
            cause = (
                f"Rank 0 timed out in monitoredBarrier after {limit} ms.\n"
                f"No ranks successfully processed in monitoredBarrier.\n{cause}"
            )
    else:
        words = (
            f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting "
            "for send/recv from rank 0. Please check rank 0 logs for faulty rank."
        )
    return type(error)(f"{words}\n Original exception: \n{cause}")
