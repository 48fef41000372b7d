#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Many groups alive at once with few descriptors; one that fails beside them; two threads on two.
. "$srcdir/tests/support/job.sh"
program=tests/jobs/many_groups
groups=100 limit=128
[ -z "${CHECK_LONG-}" ] || groups=1000 limit=1024

# with_descriptors MOST COMMAND...: the limit is hard and soft.
cat >"$job_folder/with_descriptors" <<'END'
#!/bin/bash
ulimit -n "$1" || exit 99
shift
exec "$@"
END
chmod +x "$job_folder/with_descriptors"

# Each group over UCX takes some: they run out, and that is an error, no end of the process.
if [ -e "$builddir/.libs/dist_ucx.so" ]; then
    DIST_TRANSPORT=ucx job_fails "file descriptors, and fewer are left" shell 2 \
        "$job_folder/with_descriptors" 256 "$builddir/$program" ucx 100 all
fi

for transports in shm tcp shm,tcp; do
    for memory in 0 1; do
        export DIST_TRANSPORT=$transports DIST_NODE_MEMORY=$memory
        job shell 4 "$job_folder/with_descriptors" $limit "$builddir/$program" gloo $groups all
        job shell 4 "$builddir/$program" gloo 8 fails
        job shell 4 "$builddir/$program" gloo 4 threads
        [ $transports = shm ] || break
    done
done
