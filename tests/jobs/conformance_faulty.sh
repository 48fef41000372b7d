#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Planted faults: the battery must find each, or it proves nothing.
. "$srcdir/tests/support/job.sh"

battery=tests/conformance/conformance

job self 3 $battery faulty --spawn 3 --brief
DIST_FAULTY=last job_fails "FAULT all_reduce" self 3 $battery faulty --spawn 3 --brief
DIST_FAULTY=op job_fails " max, count" self 3 $battery faulty --spawn 3 --brief
DIST_FAULTY=root job_fails "FAULT broadcast" self 3 $battery faulty --spawn 3 --brief
DIST_FAULTY=input job_fails "changed its input" self 3 $battery faulty --spawn 3 --brief
DIST_FAULTY=outside job_fails "outside its buffer" self 3 $battery faulty --spawn 3 --brief
DIST_FAULTY=barrier job_fails "left a barrier" self 3 $battery faulty --spawn 3 --brief
