#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/plugin-hccl, built as its users do, against a stand-in for CANN: the conformance tests,
# device memory and streams, ranks that make no call, calls that fail, missing libraries.
. "$srcdir/tests/support/job.sh"
job_needs_modules

JOB_LIMIT=60
says() { grep -qE -- "$1" "$job_output"; }
variable() { sed -n "s/^$1 = //p" "$builddir/Makefile" | head -n 1; }

build()
{
    make -f "$srcdir/examples/plugin-hccl/Makefile" CC="$(variable CC)" OUT="$job_folder" \
        CFLAGS="-O1 -g -Werror $(variable DISTI_LDFLAGS)" DIST_CFLAGS="-I$srcdir/include" \
        >"$job_output" 2>&1
}
job_check "the plug-in builds with libdist's headers alone" build
export DIST_PLUGIN_PATH=$job_folder TMPDIR=$job_folder
unwanted() { nm -D --undefined-only "$job_folder/dist_hccl.so" | grep -qE ' (disti?_|acl|Hccl)'; }
job_check "the plug-in needs no symbol of libdist or CANN" eval '! unwanted'

# ---- missing or incomplete libraries ----

job_fails "set DIST_ACL_LIBRARY to the library" self 1 dist_info backends --backend hccl
standin=$builddir/.libs/standin_ascend.so
export DIST_ACL_LIBRARY=$standin DIST_HCCL_LIBRARY=$job_folder/none.so
job_fails "set DIST_HCCL_LIBRARY to the library" self 1 dist_info backends --backend hccl
DIST_HCCL_LIBRARY=libc.so.6 job_fails "has no HcclGetRootInfo" self 1 \
    dist_info backends --backend hccl
export DIST_HCCL_LIBRARY=$standin
STANDIN_ASCEND_DEVICES=0 job_fails "no Ascend device" self 1 \
    dist_info backends --backend hccl

# ---- features ----

table=$job_folder/support.csv
"$builddir/dist_info" backends --backend hccl --format csv >"$table"
job_check "hccl sums bfloat16" grep -q '^hccl,all_reduce,bfloat16,sum,yes' "$table"
job_check "hccl does not average" grep -q '^hccl,all_reduce,float32,avg,no' "$table"
job_environment=$(env | grep '^DIST_' | sort)
ranks_list="1 2 4" modes=(all all async)
[ -z "${CHECK_SHORT-}" ] || ranks_list="1 3" modes=(all flood)
[ -z "${CHECK_LONG-}" ] || ranks_list="1 2 4 8" modes=(all all all all)
for ranks in $ranks_list; do
    job self "$ranks" tests/conformance/conformance hccl --spawn "$ranks" --brief \
        --table "$table" --mode "${modes[0]}"
    modes=("${modes[@]:1}")
done
job self 3 dist_info selftest --backend hccl --ranks 3 --brief
job shell 1 tests/jobs/plugin_hccl streams
job shell 3 tests/jobs/plugin_hccl streams

# ---- failures ----

ended='(timed out|waited 4.0 s|has not returned)'
parts="stuck-cold stuck-warm"
[ -z "${CHECK_LONG-}" ] || parts="$parts stuck-warm-host"
stuck()
{
    job shell 3 tests/jobs/plugin_hccl "$1"
    job_check "$1: rank 0 gets an error" says "^rank 0: .*$ended"
    job_check "$1: rank 2 gets an error" says "^rank 2: .*$ended"
}
hangs()
{
    job shell 2 tests/jobs/plugin_hccl fails
    job_check "an operation that hangs on the device is ended" says "^rank 0: .*$ended"
}
for part in $parts; do DIST_TIMEOUT=4 job_parallel stuck $part; done
STANDIN_ASCEND_FAULT=hang:0:2 DIST_TIMEOUT=4 job_parallel hangs
STANDIN_ASCEND_FAULT=call:1:3 job shell 2 tests/jobs/plugin_hccl fails
job_check "the error names rank, operation and reason" says \
    'rank 1: .*rank 1, all_reduce \(operation 2\) on device 1: HcclAllReduce: internal error \(HCCL error 4\): EI9999: a planted fault'
job_check "the other rank gets an error" says '^rank 0: .*rank 1.*HcclAllReduce: internal error'
STANDIN_ASCEND_FAULT=remote:0:4 job shell 2 tests/jobs/plugin_hccl fails
job_check "a failure on the device is reported" says '^rank 0: .*HCCL reports: error cqe'
job_collect
