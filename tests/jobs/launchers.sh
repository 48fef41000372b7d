#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The three ways to start a job: a launcher (no MASTER_ADDR needed), spawning, a shell loop.
. "$srcdir/tests/support/job.sh"

battery=tests/conformance/conformance

job openmpi 3 $battery gloo --brief
job mpich 3 $battery gloo --brief
job self 3 $battery gloo --spawn 3 --brief
job shell 3 $battery gloo --brief
