#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# footprint.sh [RANKS [ROUNDS]]: measures the cost of starting each library. Run it in the build tree.
#
# In each round every library is started once. A time is that of the slowest rank from the call to
# its return, as the median over the rounds. join is measured from the first rank's call, so it
# includes the time that the launcher needs to start the remaining ranks. Memory and descriptors are
# means over the ranks, after the phase: "private" is memory that is freed with the process; "pss"
# counts a shared page divided by the number of processes that share it. idle is the maximum CPU
# time of a rank during 1 s of waiting in a barrier.
ranks=${1:-8} rounds=${2:-5}
: "${OPENMPI_RUN=mpirun.openmpi}" "${MPICH_RUN=mpirun.mpich}"
export DIST_PLUGIN_PATH=${DIST_PLUGIN_PATH-$PWD/.libs}
. "$(dirname "$0")/../../scripts/openmpi.sh"

measure()
{
    local name=$1 output
    shift
    output=$("$@" 2>/dev/null) || return # this launcher or library is not installed
    awk -v name="${name// /_}" -v round="$round" '{ print name, round, $0 }' <<<"$output"
}

rounds()
{
    for ((round = 1; round <= rounds; round++)); do
        measure "gloo, shm" env DIST_BACKEND=gloo bench/startup_dist --spawn "$ranks"
        measure "gloo, tcp" env DIST_BACKEND=gloo DIST_TRANSPORT=tcp bench/startup_dist --spawn "$ranks"
        for mpi in openmpi mpich; do
            run=$OPENMPI_RUN
            [ $mpi = mpich ] && run=$MPICH_RUN
            measure "gloo, mpirun.$mpi" env DIST_BACKEND=gloo "$run" -np "$ranks" bench/startup_dist
            measure "mpi, shm, $mpi" env DIST_BACKEND=mpi "$run" -np "$ranks" bench/startup_dist
            measure "mpi, mpi, $mpi" env DIST_BACKEND=mpi DIST_TRANSPORT=mpi \
                "$run" -np "$ranks" bench/startup_dist
            measure "$mpi itself" "$run" -np "$ranks" "bench/startup_$mpi"
        done
    done
}

rounds | awk '
function median(name, phase,    n, i, j, t, v) {
    for (i = 1; (name, phase, i) in slowest; i++)
        v[++n] = slowest[name, phase, i]
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && v[j] < v[j - 1]; j--) {
            t = v[j]; v[j] = v[j - 1]; v[j - 1] = t
        }
    return v[int((n + 1) / 2)] / 1000
}
function held(name, phase) {
    return sprintf("%5.0f %5.0f %4.0f", private[name, phase] / lines[name, phase],
                   pss[name, phase] / lines[name, phase],
                   descriptors[name, phase] / lines[name, phase])
}
{
    at = $1 SUBSEP $3
    if (!($1 in seen)) { seen[$1] = 1; names[++count] = $1 }
    took = $6 - $5
    if (took > slowest[at, $2]) slowest[at, $2] = took
    if ($3 == "idle" && $7 > idle[$1]) idle[$1] = $7
    lines[at]++; private[at] += $8; pss[at] += $9; descriptors[at] += $10
}
END {
    printf "%-22s %8s %8s %8s   %-16s   %-16s   %-16s   %-16s\n", "milliseconds, KiB", "join",
           "leave", "idle", "at the start", "joined", "all_reduce", "all_to_all"
    for (i = 1; i <= count; i++) {
        name = names[i]
        text = name
        gsub(/_/, " ", text)
        printf "%-22s %8.1f %8.1f %8.1f   %s   %s   %s   %s\n", text, median(name, "join"),
               median(name, "leave"), idle[name] / 1000, held(name, "begin"), held(name, "join"),
               held(name, "all_reduce"), held(name, "all_to_all")
    }
}'
