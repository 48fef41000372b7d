#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dist_register in processes in which a library has hooked mmap, munmap, mremap and madvise: a
# stand-in that needs no UCX, UCX, and MPI. As root, who can map address 0, and without that right.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/hooked

cat >"$job_folder/standin" <<END
export LD_PRELOAD='$builddir/.libs/standin_hooks.so' DIST_FLIGHT_FILE='$job_folder/rank%r.json'
exec '$builddir/$program' "\$@"
END

# with_and_without LAUNCHER RANKS PROGRAM ARGS...
without=(setpriv --bounding-set=-sys_rawio --inh-caps=-sys_rawio)
with_and_without()
{
    job "$@"
    [ "$(id -u)" = 0 ] || return 0
    if "${without[@]}" true 2>/dev/null; then
        job "$1" "$2" "$(type -P setpriv)" "${without[@]:1}" "${@:3}"
    else
        job_skip "$* without CAP_SYS_RAWIO" "setpriv cannot drop it"
    fi
}

# Sanitizers hook the same functions of libc, and must be loaded first.
if ! job_has_modules; then
    :
elif [ -n "${CHECK_SHORT-}" ]; then
    job_skip "the stand-in" "a sanitizer or valgrind has replaced these calls"
else
    with_and_without shell 2 "$BASH" "$job_folder/standin" gloo
    job_check "SIGUSR1 within a hook" test -s "$job_folder/rank0.json"
    DIST_TRANSPORT=tcp job shell 2 "$BASH" "$job_folder/standin" gloo
fi
if [ -e "$builddir/.libs/dist_ucx.so" ]; then
    with_and_without shell 2 "$builddir/$program" ucx
    DIST_TRANSPORT=ucx job shell 2 $program ucx
else
    job_skip "backend ucx" "the ucx module was not built"
fi
with_and_without mpich 2 "$builddir/$program" mpi
with_and_without openmpi 2 "$builddir/$program" mpi
