#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The battery against backends self and gloo, over each transport alone and over the choice.
. "$srcdir/tests/support/job.sh"

battery=tests/conformance/conformance

job self 1 $battery self --spawn 1
for ranks in 1 2 3 4 5 8; do
    brief=--brief
    [ $ranks = 2 ] || [ -n "${CHECK_LONG-}" ] && brief=
    job self $ranks $battery gloo --spawn $ranks $brief
    DIST_TRANSPORT=tcp job self $ranks $battery gloo --spawn $ranks $brief
    DIST_TRANSPORT=shm DIST_SHM_CMA=0 job self $ranks $battery gloo --spawn $ranks $brief
done
