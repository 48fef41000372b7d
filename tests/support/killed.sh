#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# killed.sh COMMAND...: a rank of a job in which rank 1 is to be ended by SIGKILL; else it fails.
"$@"
code=$?
[ "$RANK" != 1 ] || exit $((code != 137))
exit $code
