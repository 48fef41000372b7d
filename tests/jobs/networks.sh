#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two machines whose network is slow, loses packets, or is cut: right results, or an error by the
# deadline.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/nodes.sh"

JOB_LIMIT=90
[ -z "${CHECK_SHORT-}" ] || { job_skip "networks" "the other suite runs them"; exit; }
node_make 2>"$job_folder/why" || { job_skip "networks" "$(tail -n 1 "$job_folder/why")"; exit; }

program=$builddir/tests/jobs/kills
there() { ip netns exec "$node_name" "$@"; }
every() { [ "$(grep -c "^knew .*$1" "$job_output")" = "${2-4}" ]; }
seconds() { awk '$1 == "knew" && $4 - $3 > most { most = $4 - $3 } END { printf "%.1f", most }' "$job_output"; }

# calls NAME: the calls of four ranks on two machines have right results.
calls()
{
    nodes 4 "2 3" "$program" gloo network 0 2048
    job_check "$1: no false alarm" every success
}

have_met() { [ "$(grep -cs '^met' "$job_output")" = 4 ]; }
# A lost peer must not be called alive: each error has a reason.
says_why() { ! grep '^knew ' "$job_output" | grep -vE 'silent|unreachable'; }

# broken NAME COMMAND...: when the ranks have joined, the command cuts the network.
broken()
{
    local name=$1 cutter
    shift
    rm -f "$job_output"
    { job_until have_met && "$@"; } &
    cutter=$!
    DIST_TIMEOUT=3 nodes 4 "2 3" "$program" gloo cut 0 2048
    wait $cutter
    job_check "$name: all ranks get an error" every "\(lost\|timed out\)"
    job_check "$name: the errors have a reason" says_why
    echo "# $name: the last rank got the error after $(seconds) s, with a deadline of 3 s"
}

calls "a network that is well"
if command -v tc >/dev/null && tc qdisc add dev "dA$$" root tbf rate 1mbit burst 16kb latency 400ms; then
    calls "1 Mbit/s"
    tc qdisc del dev "dA$$" root
else
    job_skip "1 Mbit/s" "tc cannot make it here"
fi
if there iptables -L >/dev/null 2>&1; then
    for loss in 0.01 0.05; do
        there iptables -A INPUT -m statistic --mode random --probability $loss -j DROP
        calls "a loss of $loss"
        there iptables -F INPUT
    done
    broken "packets are dropped" there iptables -A INPUT -j DROP
    job_check "packets are dropped: a machine that does not answer is reported so" \
        grep -q '^knew .*unreachable' "$job_output"
    there iptables -F INPUT
else
    job_skip "lost packets" "no iptables here"
fi
broken "the link is down" ip link set "dA$$" down
ip link set "dA$$" up

# The other machine vanishes: its ranks are killed after its packets are dropped, so no connection
# is closed: they are half open.
vanish()
{
    local pid parent
    ip link set "dA$$" down
    # Spares their parents, whose exit the launcher would see.
    for pid in $(ip netns pids "$node_name"); do
        read -r _ _ _ parent _ <"/proc/$pid/stat"
        [ "$(<"/proc/$parent/comm")" != kills ] || kill -KILL "$pid"
    done
}
rm -f "$job_output"
{ job_until have_met && vanish; } &
vanished=$!
DIST_TIMEOUT=3 nodes 4 "2 3" "$program" gloo cut 0 2048
wait $vanished
job_check "the other machine vanished: its ranks ended unnoticed" [ "$(grep -c '^dead' "$job_output")" = 2 ]
job_check "the remaining ranks get an error" every "\(lost\|timed out\)" 2
# A rank that waits for a rank which itself waits can only name that one.
job_check "an error names a rank of that machine" grep -q '^knew .*rank [23]' "$job_output"
job_check "the errors have a reason" says_why
grep '^knew' "$job_output" | cut -d' ' -f5- | sed 's/^/      /'
echo "# vanished: the last rank got the error after $(seconds) s, with a deadline of 3 s"
