#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# DIST_FAULT: each fault of a message has the specified effect, and misspelt faults are refused.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
kills=tests/jobs/kills

# misspelt faults
hello=examples/hello_all_reduce
DIST_FAULT=kil:1@2 job_fails "'kil' is no kind of fault" shell 2 $hello
DIST_FAULT=kill:1@2,drop:0@soon job_fails "'soon' is no operation" shell 2 $hello
DIST_FALT=kill:1@2 DIST_DEBUG=warn job shell 2 $hello
job_check "the error suggests the right name" grep -q 'did you mean DIST_FAULT' "$job_output"

# messages FAULT: the program calls until it has right results or an error.
messages() { DIST_FAULT=$1 job shell 3 $kills gloo network 1; }
every() { [ "$(grep -c "^knew .*$1" "$job_output")" = 3 ]; }
for DIST_TRANSPORT in shm tcp; do
    export DIST_TRANSPORT
    messages 'delay:1@*:time=5ms'
    job_check "delayed messages cause no error" every "success"
    messages 'slow:1@*:time=5ms,delay:*@*:p=0.1:time=2ms'
    job_check "slow ranks cause no error" every "success"
    messages reset:1@6
    job_check "a reset fails the call on all ranks" every "rank 1"
    messages truncate:1@6/0
    job_check "a truncated message fails the call on all ranks" every "rank 1"
    DIST_FAULT=flip:1@6/0 job_fails 'and the status OK' shell 3 $kills gloo network 1
    # These cases wait for a timeout.
    DIST_TIMEOUT=2 DIST_FAULT=drop:1@6/0 job_parallel job shell 3 $kills gloo silence 1
    DIST_TIMEOUT=2 DIST_FAULT=stall:1@6:time=4s job_parallel job shell 3 $kills gloo silence 1
done
# A checksum detects a flipped bit.
DIST_CHECKSUM=1 messages flip:1@6/0
job_check "damage is detected, and the peer named" grep -q 'rank 1 .*DIST_CHECKSUM' "$job_output"
job_check "all ranks get an error" every lost
DIST_CHECKSUM=1 messages 'delay:1@*:time=2ms'
job_check "undamaged messages arrive" every "success"
unset DIST_TRANSPORT
job_collect
