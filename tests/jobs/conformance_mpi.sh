#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The battery against backend mpi: our plans over shared memory, over MPI messages, and MPI's own
# collectives. MPICH spins when it waits, so it gets few ranks.
. "$srcdir/tests/support/job.sh"

battery=tests/conformance/conformance

for ranks in 1 2 3 4 5 8; do
    job openmpi $ranks $battery mpi --brief
    DIST_TRANSPORT=mpi job openmpi $ranks $battery mpi --brief
    DIST_MPI_COLL=native job openmpi $ranks $battery mpi --brief --native
done
for ranks in 1 2 3; do
    job mpich $ranks $battery mpi --brief
done
DIST_TRANSPORT=mpi job mpich 2 $battery mpi --brief
DIST_MPI_COLL=native job mpich 2 $battery mpi --brief --native
