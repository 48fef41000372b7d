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

# many BACKEND: in this environment.
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

# UCX ends the process where it finds no descriptor: ours is an error, before it begins.
if [ -e "$builddir/.libs/dist_ucx.so" ]; then
    export DIST_TRANSPORT=ucx
    many ucx
    job_fails "UCX needs up to 64 file descriptors, but fewer are left" shell 2 \
        "$job_folder/with_descriptors" 64 "$builddir/$program" ucx 2 all
fi
