#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# bench/netns-cluster: the hosts it makes, the variables of its ranks, how it ends, and that it
# leaves nothing behind.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "netns-cluster" "the other suite tests scripts"; exit; }

cluster=$srcdir/bench/netns-cluster
[[ $cluster == /* ]] || cluster=$PWD/$cluster

# Ignores Open MPI's warning that its child has set its process group first, which is not output of
# ranks.
says() { [ "$(grep -v 'plm:rsh: Warning: setpgid' "$job_output" | sort)" = "$1" ]; }

# lines NAME TEXT OPTION...: the run's sorted output is TEXT.
lines()
{
    job self - "$cluster" "${@:3}"
    [[ $job_status == 77 ]] || job_check "$1" says "$2"
}

if ! "$cluster" true 2>"$job_folder/why"; then
    job_skip "netns-cluster" "$(tail -n 1 "$job_folder/why")"
    exit
fi

who='echo $(uname -n) $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, $MASTER_ADDR:$MASTER_PORT'
lines "each rank knows its place" "node0 0 of 4, 0 of 2, 10.10.0.1:29500
node0 1 of 4, 1 of 2, 10.10.0.1:29500
node1 2 of 4, 0 of 2, 10.10.0.1:29500
node1 3 of 4, 1 of 2, 10.10.0.1:29500" -k 2 -n 2 bash -c "$who"
lines "labels" "[0] node0
[1] node1
[2] node2" -k 3 --label uname -n
lines "a cluster in a host of a cluster" "node0
node0
node1
node1" "$cluster" -k 2 uname -n

# The settings of the interfaces: the rate in both directions, the size of frames.
job self - "$cluster" -k 1 -i 2 --mtu 9000 ip -o link show
job_check "frames of 9000 bytes on each of 2 interfaces" [ "$(grep -c 'eth[01].*mtu 9000' "$job_output")" = 2 ]
if command -v tc >/dev/null; then
    job self - "$cluster" -k 1 -r 100mbit tc qdisc show dev eth0
    job_check "a rate" grep -q 'tbf.* rate 100Mbit' "$job_output"
fi

# The exit status.
exit_is() { [ "$job_status" = "$1" ]; }
job_launch self - "$cluster" -k 3 -g 0 bash -c '[ $RANK = 1 ] && exit 5; sleep 60'
job_check "the exit status is that of the rank that failed" exit_is 5
job_check "the other ranks are killed after it" eval '! job_leaked'
job_launch self - "$cluster" -k 0 true
job_check "wrong options: 2" exit_is 2

# ended SIGNAL: after the script is killed, no rank remains.
ended()
{
    local pid
    job_id=$$.$1
    TEST_JOB=$job_id job_background "$cluster" -k 2 bash -c 'echo there; sleep 60'
    pid=$!
    job_until eval '[ "$(grep -c there "$job_output")" = 2 ]' || return
    kill "-$1" $pid
    wait $pid 2>/dev/null
    ! job_leaked
}
job_check "no process is left after SIGTERM" ended TERM
job_check "no process is left after SIGKILL" ended KILL

# carried LEAST: each interface of each host has sent at least LEAST percent of the host's bytes.
carried()
{
    awk -v least="$1" '/^eth/ { share = 100 * $2 / ($2 + $4); lines++
            if (share < least || share > 100 - least) bad = 1 }
        END { exit lines != 2 || bad }' "$job_output"
}

# Two interfaces per host: a long vector uses both, and the result is right.
right() { grep -q '^all_reduce,.*,right$' "$job_output"; }
cat >"$job_folder/sent" <<END
"$builddir/dist_bench" -m 8M:8M -i 3 -x 1 -r 1 -c --format csv all_reduce &&
    awk '/eth/ { sub(":", " "); printf "%s %s ", \$1, \$10 } END { print "" }' /proc/net/dev
END
if command -v tc >/dev/null; then
    export DIST_TIMEOUT=30
    job self 2 "$cluster" -k 2 -i 2 -r 200mbit bash "$job_folder/sent"
    job_check "two interfaces: the result is right" right
    job_check "two interfaces: each carries a third at least" carried 33
    DIST_SOCKET_IFNAME==eth1,eth0 DIST_TCP_SOCKETS=4 \
        job self 2 "$cluster" -k 2 -i 2 -r 200mbit bash "$job_folder/sent"
    job_check "two interfaces, 4 sockets: each carries a third at least" carried 33
    DIST_SOCKET_IFNAME==eth1 \
        job self 2 "$cluster" -k 2 -i 2 -r 200mbit bash "$job_folder/sent"
    job_check "one of two interfaces is selected: the other carries nothing" eval '! carried 5'
fi

# Ranks of libdist and of Open MPI detect several machines.
export DIST_TIMEOUT=30
job self - "$cluster" -k 2 -n 2 "$builddir/tests/conformance/conformance" gloo --brief
if [ -n "$OPENMPI_RUN" ]; then
    lines "mpirun" "node0 0
node0 1
node1 2
node1 3" --mpirun -k 2 -n 2 -- bash -c 'echo $(uname -n) $OMPI_COMM_WORLD_RANK'
fi
