#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Many groups at the same time with few descriptors; a group that fails beside them; two threads on
# two groups.
. "$srcdir/tests/support/job.sh"
program=tests/jobs/many_groups
groups=100 limit=128
[ -z "${CHECK_LONG-}" ] || groups=1000 limit=1024

# with_descriptors MOST COMMAND...: sets the hard and the soft limit.
cat >"$job_folder/with_descriptors" <<'END'
#!/bin/bash
ulimit -n "$1" || exit 99
shift
exec "$@"
END
chmod +x "$job_folder/with_descriptors"

# many BACKEND: runs the cases in this environment.
many()
{
    job shell 4 "$job_folder/with_descriptors" $limit "$builddir/$program" "$1" $groups all
    job shell 4 "$builddir/$program" "$1" 8 fails
    job shell 4 "$builddir/$program" "$1" 4 threads
}

for transports in shm tcp shm,tcp; do
    for memory in 0 1; do
        DIST_TRANSPORT=$transports DIST_NODE_MEMORY=$memory many gloo
        [ $transports = shm ] || break
    done
done

# UCX aborts the process if it finds no descriptor, so the library reports an error before that.
if [ -e "$builddir/.libs/dist_ucx.so" ]; then
    export DIST_TRANSPORT=ucx
    many ucx
    job_fails "UCX needs up to 64 file descriptors, but fewer are left" shell 2 \
        "$job_folder/with_descriptors" 64 "$builddir/$program" ucx 2 all
fi
