#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# DIST_FAULT: each fault of a message does what it says, and what is misspelt is named.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
kills=tests/jobs/kills

# what is misspelt
hello=examples/hello_all_reduce
DIST_FAULT=kil:1@2 job_fails "'kil' is no kind of fault" shell 2 $hello
DIST_FAULT=kill:1@2,drop:0@soon job_fails "'soon' is no operation" shell 2 $hello
DIST_FALT=kill:1@2 DIST_DEBUG=warn job shell 2 $hello
job_check "what is meant is said" grep -q 'did you mean DIST_FAULT' "$job_output"

# messages FAULT: the program calls, and is to find right results or an error.
messages() { DIST_FAULT=$1 job shell 3 $kills gloo network 1; }
every() { [ "$(grep -c "^knew .*$1" "$job_output")" = 3 ]; }
for DIST_TRANSPORT in shm tcp; do
    export DIST_TRANSPORT
    messages 'delay:1@*:time=5ms'
    job_check "late messages are no error" every "success"
    messages 'slow:1@*:time=5ms,delay:*@*:p=0.1:time=2ms'
    job_check "nor are slow ranks" every "success"
    messages reset:1@6
    job_check "a reset ends it on all" every "rank 1"
    messages truncate:1@6/0
    job_check "a message that is cut, too" every "rank 1"
    DIST_FAULT=flip:1@6/0 job_fails 'and the status OK' shell 3 $kills gloo network 1
    # These wait for a deadline.
    DIST_TIMEOUT=2 DIST_FAULT=drop:1@6/0 job_aside job shell 3 $kills gloo silence 1
    DIST_TIMEOUT=2 DIST_FAULT=stall:1@6:time=4s job_aside job shell 3 $kills gloo silence 1
done
# A checksum finds the bit.
DIST_CHECKSUM=1 messages flip:1@6/0
job_check "damage is found, and the peer named" grep -q 'rank 1 .*DIST_CHECKSUM' "$job_output"
job_check "all get an error" every lost
DIST_CHECKSUM=1 messages 'delay:1@*:time=2ms'
job_check "what is not damaged arrives" every "success"
unset DIST_TRANSPORT
job_collect
