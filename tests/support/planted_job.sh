#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A job whose ranks have the faults of planted_fault.c; for watched.sh.
. "$srcdir/tests/support/job.sh"
job shell 2 tests/support/planted_fault
