#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dist_info: what it says, what it refuses, and that its csv is whole.
. "$srcdir/tests/support/job.sh"

says() { grep -qF -- "$1" "$job_output"; }
lines() { [ "$(wc -l <"$job_output")" = "$1" ]; }
fields() { ! grep -vqE '^[a-z]+,[a-z_]+,[a-z0-9]+,([a-z_]+|-),(yes|no)$' "$job_output"; }

# The number of entries of an X-macro of a header.
entries() { sed -n "/define DIST_$1_MAP/,/[^\\\\]\$/p" "$srcdir/include/dist/$2" | grep -c '  X(.*"'; }
dtypes=$(entries DTYPE dist.h) ops=$(entries OP dist.h) collectives=$(entries COLLECTIVE backend.h)
reducing=4

job self 1 dist_info
job_check "it says the version" says "libdist 0."
job_check "it says where modules are looked for" says "${DIST_PLUGIN_PATH%%:*}"
job_check "it lists the backends" grep -qE '^ *gloo +yes ' "$job_output"

# memory: three lines, yes or no, and advice after each no but one.
advised() { awk '/^  [a-z].* no  /{if (no) exit 1; no = !/DIST_SHM_CMA|CONFIG_TRANS/} /^      [A-Za-z]/{no = 0}
    END{exit no}' "$job_output"; }
job self 1 dist_info memory
job_check "it says what can be done with memory" \
    test "$(grep -cE '^  [a-z][^ ].*  (yes |no  ) ?[a-zA-Z]' "$job_output")" = 3
job_check "it says what to do" advised
DIST_SHM_CMA=0 job self 1 dist_info memory
job_check "it says that CMA is not used" grep -qE '\(CMA\) +no ' "$job_output"
job_fails "'all' is not understood" self 1 dist_info memory all

job self 1 dist_info backends
job_check "it shows gloo" grep -qx gloo "$job_output"
job_check "it shows self" grep -qx self "$job_output"
job_check "every collective has a row" says reduce_scatter_v
job_check "there is a matrix" grep -qE '^ *float32( +yes){5}' "$job_output"

job self 1 dist_info backends --backend gloo --format csv
job_check "a line of csv for each that can be asked" lines \
    $((dtypes * (reducing * ops + collectives - reducing)))
job_check "its lines are csv" fields
job_check "gloo sums float32" says "gloo,all_reduce,float32,sum,yes"
job_check "a broadcast has no op" says "gloo,broadcast,float32,-,yes"
job openmpi 1 dist_info backends --backend mpi --format csv
[ -z "$job_status" ] || job_check "mpi sends" says "mpi,send,uint8,-,yes"
job mpich 1 dist_info backends --backend mpi
[ -z "$job_status" ] || job_check "mpi has a table" says "every dtype"

job self 1 dist_info --help
job_check "help says how to call it" says "usage: dist_info"
job self 1 dist_info --version
job_fails "there is no module dist_glue.so" self 1 dist_info backends --backend glue
job_fails "'tables' is not understood" self 1 dist_info tables
job_fails "'more' is not understood" self 1 dist_info backends more
job_fails "neither table nor csv" self 1 dist_info backends --format xml
job_fails "unrecognized option '--all'" self 1 dist_info --all
job_fails "go with backends" self 1 dist_info --backend gloo
job_check "wrong usage is exit 2" test "$job_status" = 2
