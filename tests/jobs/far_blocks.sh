#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Blocks at offsets that exceed 32 bits: over each transport, and with MPI's own collectives, whose
# offsets are ints.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/far_blocks
job shell 3 $program gloo
DIST_NODE_MEMORY=0 job shell 3 $program gloo
DIST_TRANSPORT=tcp job shell 2 $program gloo
for mpi in openmpi mpich; do
    DIST_TRANSPORT=mpi job $mpi 2 $program mpi
    DIST_MPI_COLL=native job $mpi 2 $program mpi
    DIST_MPI_COLL=native job $mpi 3 $program mpi
done
