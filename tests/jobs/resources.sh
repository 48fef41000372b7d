#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Too few descriptors, and a machine with a tiny /dev/shm: success, or an error that names the
# requirement; never a signal.
. "$srcdir/tests/support/job.sh"
export DIST_BACKEND=gloo DIST_TUNING=off DIST_TIMEOUT=5
# The program itself: libtool's wrapper is a shell script, which needs more descriptors.
program=$builddir/examples/hello_all_reduce
if [ -x "$builddir/examples/.libs/hello_all_reduce" ]; then
    program=$builddir/examples/.libs/hello_all_reduce
    export LD_LIBRARY_PATH=$builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

# limited RANK MOST: that rank (all: every rank) may have MOST descriptors, and inherits no further
# ones.
cat >"$job_folder/limited" <<END
#!/bin/bash
if [ "\$1" = all ] || [ "\$1" = "\$RANK" ]; then ulimit -n "\$2" || exit 99; fi
exec "$program" 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-
END
chmod +x "$job_folder/limited"
limited() { job_fails "$1" shell 6 "$job_folder/limited" "${@:2}"; }
says() { grep -qF -- "$1" "$job_output"; }

limited "raise the hard limit of open files (ulimit -Hn) to 22 or more" all 20
for transport in shm tcp; do
    export DIST_TRANSPORT=$transport DIST_NODE_MEMORY=0 DIST_ALGO=all_reduce:direct
    limited "rank 3" 3 6
    # Enough to join, but not for five connections.
    DIST_TIMEOUT=3 job_launch shell 6 "$job_folder/limited" 3 10
    job_check "$transport: not killed by a signal" [ $job_status -lt 124 ]
    job_check "$transport: the error names the number needed" says "to connect to all 6 ranks"
done
unset DIST_TRANSPORT DIST_NODE_MEMORY DIST_ALGO

# The ranks' memory does not fit there.
if unshare --mount true 2>/dev/null; then
    small() { mount -t tmpfs -o size=4k tmpfs /dev/shm && exec "$@"; }
    export -f small
    DIST_TIMEOUT=60 job self 3 "$(command -v unshare)" --mount "$BASH" -c 'small "$@"' small \
        "$builddir/tests/conformance/conformance" gloo --spawn 3 --brief --mode blocking
else
    job_skip "a small /dev/shm" "no mount namespace can be made here"
fi
