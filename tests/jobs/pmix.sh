#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ranks that join through their launcher's PMIx, and the outcome if that does not answer.
. "$srcdir/tests/support/job.sh"
job_needs_modules

program=tests/jobs/pmix
met() { [ "$(grep -c "meets the other ranks through the launcher's PMIx" "$job_output")" = "$1" ]; }

# Ranks of Open MPI 4 join through PMIx only if it uses the system's libpmix.
library=no
ldconfig=$(PATH=$PATH:/sbin:/usr/sbin type -P ldconfig) &&
    "$ldconfig" -p | grep -q 'libpmix\.so\.2 ' && library=yes

# on_open_mpi RANKS NAME WORD...: runs the words one after another in one process; all of them join
# that way.
on_open_mpi()
{
    local groups=0 word
    DIST_PMIX=1 DIST_DEBUG=info job openmpi "$1" $program "${@:3}"
    [ "$job_status" = 0 ] || return
    for word in "${@:3}"; do
        [ "$word" = gloo ] && groups=$((groups + 1))
    done
    job_check "$2" met $((groups * $1))
}

# Programs that run one after another in one process slot of the launcher.
cat >"$job_folder/twice" <<END
"$builddir/$program" gloo && "$builddir/$program" gloo
END

if [ -n "$OPENMPI_RUN" ] && [ $library = yes ]; then
    on_open_mpi 2 "twice, and a child ends between" gloo fork gloo
    on_open_mpi 2 "MPI begins afterwards" gloo mpi gloo
    [ -n "${CHECK_SHORT-}" ] || on_open_mpi 2 "MPI begins before" mpi gloo mpi
    if [ -n "${CHECK_LONG-}" ]; then
        on_open_mpi 3 "ranks start ranks of their own" spawn gloo
        DIST_PMIX=1 DIST_DEBUG=info job openmpi 2 "$BASH" "$job_folder/twice"
        job_check "one program after the other" met 4
        DIST_PMIX=1 DIST_TIMEOUT=1 job_parallel job_fails \
            'waited at most 1000 ms for the other 1 ranks' openmpi 2 $program absent gloo
        DIST_PMIX=0 DIST_DEBUG=info job openmpi 2 $program gloo
        job_check "DIST_PMIX=0: without PMIx" met 0
    fi
else
    job_skip "Open MPI" "no mpirun of Open MPI or no libpmix.so.2 here"
fi

# Open MPI 5, which has its own PMIx, and its launcher prterun, which sets only PMIx's variables.
five=${DIST_BENCH_PEERS:-$HOME/.cache/libdist/peers}/openmpi5.venv/bin
if [ -x "$five/prterun" ] && [ -z "${CHECK_SHORT-}" ]; then
    DIST_PMIX=1 DIST_DEBUG=info job self 2 "$five/mpirun" --oversubscribe -np 2 \
        "$builddir/$program" gloo fork gloo
    job_check "Open MPI 5: twice" met 4
    DIST_DEBUG=info job self 3 "$five/prterun" --allow-run-as-root --map-by :OVERSUBSCRIBE -np 3 \
        "$builddir/$program" gloo gloo
    job_check "prterun: ranks and their number" grep -q 'started by PMIx, 3 ranks' "$job_output"
else
    job_skip "Open MPI 5" "not made by bench/peers/setup, or the other suite runs it"
fi

# Misbehaving PMIx servers, for one rank of two on different machines; the other rank is not started.
mkdir -p "$job_folder/pmix/lib" "$job_folder/old/lib"
ln -s "$builddir/.libs/standin_pmix.so" "$job_folder/pmix/lib/libpmix.so.2"
ln -s "$builddir/.libs/standin_partial.so" "$job_folder/old/lib/libpmix.so.2"

# fails_with TEXT LIBRARY BEHAVIOUR LAUNCHER RANK [WORD...]
fails_with()
{
    local -x DIST_DEBUG=info DIST_TIMEOUT=1 DIST_TEST_PMIX=$3 PMIX_PREFIX=$job_folder/$2
    local -x PMIX_NAMESPACE=job PMIX_SERVER_URI41=none PMIX_RANK=$5
    [ "$4" = OpenMPI ] && local -x OMPI_COMM_WORLD_RANK=$5 OMPI_COMM_WORLD_SIZE=2 \
        OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1
    [ "$4" = srun ] && local -x SLURM_STEP_ID=0 SLURM_PROCID=$5 SLURM_NTASKS=2 SLURM_LOCALID=0 \
        SLURM_NODEID=$5 'SLURM_STEP_TASKS_PER_NODE=1(x2)' SLURM_STEP_NODELIST=127.0.0.1
    job_fails "$1" self 1 $program gloo "${@:6}"
}
# order TEXT...: these lines are printed in this order, and no other lines that begin like one of
# them.
order() { job_check "$*" [ "$(grep -xE 'finalized|after .*' "$job_output" | paste -sd' ')" = "$*" ]; }
fails_with 'libpmix.so.2 has no function' old '' PMIx 0
fails_with 'AN_ERROR, status -1' pmix init PMIx 0
job_parallel fails_with 'no answer before the deadline' pmix init_hangs PMIx 0
fails_with 'the world size is not known' pmix get PMIx 1
fails_with 'AN_ERROR, status -1' pmix put srun 0
fails_with 'AN_ERROR, status -1' pmix fence srun 1
job_parallel fails_with 'no answer before the deadline' pmix fence_hangs srun 1
job_parallel fails_with 'not answered the previous request yet' pmix init_hangs OpenMPI 1
# After the first time limit and before the second.
late()
{
    fails_with 'rank 0 could not open a store' pmix init_late OpenMPI 1
    job_check "a late answer is accepted" grep -q '^finalized' "$job_output"
}
job_parallel late
job_parallel fails_with 'got no address of rank 0' pmix get srun 1
fails_with 'got no address of rank 0' pmix garbage srun 1
fails_with 'rank 0 could not open a store' pmix '' srun 1
order finalized after gloo
# Versions with which MPI, which initializes PMIx again, would fail.
for version in "OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, Stable ABI: 0.0)" "PMIx 3.2.3" unknown; do
    DIST_TEST_PMIX_VERSION=$version fails_with 'rank 0 could not open a store' pmix '' srun 1
    order after gloo finalized
done
# The abandoned thread finalizes what it has begun.
given_up()
{
    fails_with 'no answer before the deadline' pmix init_late PMIx 1 late
    order after gloo finalized after late
}
job_parallel given_up

# srun's own method is used if PMIx fails; rank 0 does not join that way either.
falls_back()
{
    fails_with 'PMIx is not used: AN_ERROR, status -1' pmix init srun 1
    job_check "srun's own method is tried" grep -q '127.0.0.1 port 2[0-9]*' "$job_output"
}
job_parallel falls_back
job_collect
