#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ranks are killed at random; the remaining ranks make a smaller group and continue.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/survives.sh"

program=tests/jobs/shrink
rounds=3 seed=${SHRINK_SEED:-$RANDOM} JOB_LIMIT=60
[ -z "${CHECK_LONG-}" ] || rounds=100
[ -z "${CHECK_SHORT-}" ] || rounds=1

# killed BACKEND: runs the cases in this environment.
killed()
{
    local round
    for ((round = 0; round < rounds; round++)); do
        job shell 6 $program "$1" 3 $((seed + round))
        job shell 4 $program "$1" 3 $((seed + round))
    done
}

killed gloo
DIST_NODE_MEMORY=0 killed gloo
DIST_TRANSPORT=tcp killed gloo
# If distrun serves the store, rank 0 may be killed too.
for ((round = 0; round < rounds; round++)); do
    job self 4 distrun -n 4 "$builddir/$program" gloo 3 $((seed + round)) any
done
# Not over UCX: if a peer dies while ranks connect, UCX 1.13 aborts the process.

# Under a launcher that serves the store any rank may die, once or twice.
cat >"$job_folder/remote" <<'END'
#!/bin/sh
echo $$ >"$job_folder/shell.$1"
shift
exec "$@"
END
chmod +x "$job_folder/remote"
export job_folder
distrun=$builddir/distrun
two=(--remote-shell "$job_folder/remote" -H localhost:2,127.0.0.1:2)
go_on="goes on with"
survives "distrun, ranks 0 and 2" 137 2 "$go_on 2" self 4 "$distrun" -n 4 --on-failure continue \
    "$builddir/$program" gloo deaths 0,2
job_check "the dead ranks are reported" \
    [ "$(grep -c '^distrun: rank [02] (.*) was ended by signal 9: ' "$job_output")" = 2 ]
survives "distrun on two nodes, ranks 3 and 0" 137 2 "$go_on 2" self 4 "$distrun" "${two[@]}" \
    --on-failure continue "$builddir/$program" gloo deaths 3,0
# Rank 2 kills the remote shell of its host.
cat >"$job_folder/lose" <<'END'
#!/bin/bash
case $RANK in
2)  echo $$ >"$job_folder/lost"
    kill -KILL "$(cat "$job_folder/shell.127.0.0.1")"
    sleep 30 ;;
3)  sleep 30 ;;
*)  until [ -s "$job_folder/lost" ]; do sleep 0.02; done
    while kill -0 "$(cat "$job_folder/lost")" 2>/dev/null; do sleep 0.02; done
    echo "rank $RANK goes on" ;;
esac
END
chmod +x "$job_folder/lose"
survives "a host is lost" 1 2 " goes on" self 4 "$distrun" "${two[@]}" --on-failure continue "$job_folder/lose"
survives "all ranks fail" 3 1 "restarting all workers" self 2 "$distrun" -n 2 --max-restarts 1 \
    --on-failure continue sh -c 'exit 3'
survives "one rank fails: no restart" 3 0 "restarting all workers" self 2 "$distrun" -n 2 --max-restarts 1 \
    --on-failure continue sh -c 'exit $((RANK ? 3 : 0))'
# The example: rank 0 is killed in the middle.
DIST_FAULT=kill:0@30 survives "examples/elastic" 137 2 "2 ranks are left, weight 1.50" self 3 "$distrun" -n 3 \
    --on-failure continue "$builddir/examples/elastic"
job_parallel job shell 3 $program gloo absent
job shell 3 $program gloo store
job_collect

# The table of docs/shrinking.md. If rank 0 serves the store, all other ranks get that error when it
# dies.
[ -n "${CHECK_LONG-}" ] || exit 0
lost=", which holds the store, "
# each NAME EXIT LAUNCHER WORD...: under a launcher that serves the store; `by_rank_0` otherwise.
each()
{
    local name=$1 exit=$2 deaths
    for deaths in 0 3; do
        survives "$name, rank $deaths" "$exit" 3 "$go_on 3" "${@:3}" deaths $deaths
    done
    for deaths in 0,2 3,1; do
        survives "$name, ranks $deaths" "$exit" 2 "$go_on 2" "${@:3}" deaths $deaths
    done
}
by_rank_0()
{
    local name=$1 exit=$2
    survives "$name, rank 3" "$exit" 3 "$go_on 3" "${@:3}" deaths 3
    survives "$name, ranks 3,1" "$exit" 2 "$go_on 2" "${@:3}" deaths 3,1
    survives "$name, rank 0" any 3 "$lost" "${@:3}" deaths 0
    survives "$name, ranks 2,0" any 2 "$lost" "${@:3}" deaths 2,0
}
each "distrun" 137 self 4 "$distrun" -n 4 --on-failure continue "$builddir/$program" gloo
each "distrun on two nodes" 137 self 4 "$distrun" "${two[@]}" --on-failure continue "$builddir/$program" gloo
for deaths in 0 3; do
    survives "dist_spawn_with, rank $deaths" 137 3 "$go_on 3" self 4 "$builddir/$program" gloo spawned 4 $deaths
done
for deaths in 0,2 3,1; do
    survives "dist_spawn_with, ranks $deaths" 137 2 "$go_on 2" self 4 "$builddir/$program" gloo spawned 4 $deaths
done
by_rank_0 "shell" any shell 4 $program gloo
# In a shell loop, too, a process that is not a rank may serve the store: a scheduler.
cat >"$job_folder/scheduled" <<'END'
#!/bin/bash
export MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=$1 MS_WORKER_NUM=4
shift
MS_ROLE=MS_SCHED "$@" 2>/dev/null &
for ((rank = 0; rank < 4; rank++)); do MS_ROLE=MS_WORKER MS_NODE_ID=$rank "$@" & done
wait
END
chmod +x "$job_folder/scheduled"
each "shell with a scheduler" any self 4 "$job_folder/scheduled" "$(job_port)" "$builddir/$program" gloo
each "distrun --role mindspore" 137 self 4 "$distrun" -n 4 --role mindspore --on-failure continue \
    "$builddir/$program" gloo

# Under each mpirun one distrun per node, then ranks of its own. The options keep mpirun from
# killing the other processes when one has failed.
job_recovers
job_mpich=(-disable-auto-cleanup)
five=${DIST_BENCH_PEERS:-$HOME/.cache/libdist/peers}/openmpi5.venv/bin/mpirun
five_recovers=(--runtime-options continuous,error-nonzero-status=false)
nodes=(--on-failure continue --nnodes 2 --rdzv-id shrink -n 2)
# distrun_under NAME LAUNCHER WORD...
distrun_under()
{
    each "distrun under $1" any "${@:2}" "$distrun" "${nodes[@]}" --rdzv-endpoint "127.0.0.1:$(job_port)" \
        "$builddir/$program" gloo
}
distrun_under "Open MPI 4" openmpi 2
distrun_under MPICH mpich 2
if [ -x "$five" ]; then
    distrun_under "Open MPI 5" self 4 "$five" "${five_recovers[@]}" -np 2
else
    job_skip "Open MPI 5" "not made by bench/peers/setup"
fi
# MPICH's mpirun kills all ranks when a signal kills one: the shell turns the signal into an exit
# code. MPICH reports the exit to the other ranks by SIGUSR1.
shelled=(/bin/sh -c 'trap "" USR1; "$@"; exit $?' sh)
for backend in gloo mpi; do
    by_rank_0 "Open MPI 4, $backend" any openmpi 4 $program $backend
    by_rank_0 "MPICH, $backend" any mpich 4 "${shelled[@]}" "$builddir/$program" $backend
    [ ! -x "$five" ] || by_rank_0 "Open MPI 5, $backend" any self 4 "$five" "${five_recovers[@]}" -np 4 \
        "$builddir/$program" $backend
done
