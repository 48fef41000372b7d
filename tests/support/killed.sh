#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# killed.sh COMMAND...: runs a rank of a job in which rank 1 must be killed by SIGKILL; fails
# otherwise.
"$@"
code=$?
[ "$RANK" != 1 ] || exit $((code != 137))
exit $code
