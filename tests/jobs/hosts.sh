#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# distrun -H and --hostfile: jobs on other hosts, bad hosts, and no process left there by any kind
# of end.
JOB_LIMIT=60
. "$srcdir/tests/support/job.sh"

hello=$builddir/examples/hello_all_reduce

# A replacement of ssh. Two names of this machine are two hosts; one host cannot be reached. One
# remote shell does not pass on its standard input; one host's shell is bash; one prints where the
# agents meet.
cat >"$job_folder/ssh" <<END
#!/bin/sh
host=\$1
shift
echo "\$host \$*" >>"$job_folder/called"
[ "\$host" != nowhere ] || { echo "ssh: nowhere cannot be reached" >&2; exit 255; }
[ "\$host" != deaf ] || exec "\$@" </dev/null
[ "\$host" != gone ] || { read -r line; exit 137; }
[ "\$host" != bash ] || exec "$job_folder/bash/\$@"
[ "\${host#me@}" = "\$host" ] || exec grep -m 1 -o -e "--master-addr=[^']*"
exec "\$@"
END
mkdir "$job_folder/bash"
ln -s "$BASH" "$job_folder/bash/sh"
chmod +x "$job_folder/ssh"
hosts=(--remote-shell "$job_folder/ssh" --shutdown-timeout 5)
two=("${hosts[@]}" -H 127.0.0.1:2,localhost:2)

# ---- jobs ----

job self 4 distrun "${two[@]}" "$hello"
job_check "ranks follow the order of the hosts, and each line has one prefix" \
    [ "$(grep -c '^\[\([0-3]\)\]:rank \1 of 4: sum 6$' "$job_output")" = 4 ]
job_check "bound workers are reported once" [ "$(grep -c 'bound to' "$job_output")" = 1 ]
job_check "a remote shell gets only the host and sh" \
    [ "$(sort -u "$job_folder/called")" = $'127.0.0.1 sh\nlocalhost sh' ]

printf '# a comment\n127.0.0.1 slots=2 max_slots=4\n\nlocalhost:2 # another\n' >"$job_folder/hostfile"
shares() { [ "$(grep -o 'node [01] of 2, [0-9] there$' "$job_output" | sort | uniq -c | tr -s ' \n' ' ')" = "$1" ]; }
# shellcheck disable=SC2016
say='echo "node $GROUP_RANK of $GROUP_WORLD_SIZE, $LOCAL_WORLD_SIZE there"'
job self 3 distrun "${hosts[@]}" --hostfile "$job_folder/hostfile" -np 3 sh -c "$say"
job_check "-np is the total number" shares ' 2 node 0 of 2, 2 there 1 node 1 of 2, 1 there '
job self 2 distrun "${two[@]}" --nproc-per-node 1 sh -c "$say"
job_check "--nproc-per-node is per host" shares ' 1 node 0 of 2, 1 there 1 node 1 of 2, 1 there '
job self 5 distrun "${hosts[@]}" -H 127.0.0.1,localhost:2,127.0.0.1:2 sh -c "$say"
job_check "a host that is listed twice has the sum of its slots" \
    shares ' 3 node 0 of 2, 3 there 2 node 1 of 2, 2 there '
job self 3 distrun -H localhost:3 "$hello"
job_check "this machine as the only host needs no remote shell" grep -q '^\[2\]:rank 2 of 3: sum 3$' "$job_output"

# The program's arguments, the folder and the variables arrive unchanged; PET_ variables are used
# once.
arrives()
{
    (cd "$job_folder" && PET_HOSTS=127.0.0.1,localhost ODD="a 'b' \$c" "$builddir/distrun" "${hosts[@]}" \
        --log-line-prefix-template none sh -c 'echo "$ODD|$1|$PWD|$(cat)"' sh 'd "e" $f' 2>/dev/null) |
        sort -u >"$job_output"
    [ "$(cat "$job_output")" = "a 'b' \$c|d \"e\" \$f|$job_folder|" ]
}
job_check "arguments, folder and variables arrive" arrives
# Bash, when run as sh, exits at an assignment to one of its read-only variables.
set_there() { env UID=7 PPID=7 "$builddir/distrun" "${hosts[@]}" -H bash:1 echo ran 2>&1 | tee "$job_output" | grep -q ran; }
job_check "bash's read-only variables are not sent" set_there
# An entry of the environment without "=" is not a variable.
oddly()
{
    timeout -s KILL 20 python3 -c 'import ctypes, os, sys
words = [a.encode() for a in sys.argv[1:]]
odd = [b"PET_X"] + [k + b"=" + v for k, v in os.environb.items()]
array = lambda texts: (ctypes.c_char_p * (len(texts) + 1))(*texts)
ctypes.CDLL(None).execve(words[0], array(words), array(odd))' "$builddir/distrun" "${hosts[@]}" -H 127.0.0.1 echo ran \
        >"$job_output" 2>&1 && grep -q ran "$job_output"
}
job_check "entries without = are not sent" oddly
# met_at HOST FIRST: the hosts, FIRST and another, must be told to meet at HOST.
met_at()
{
    "$builddir/distrun" "${hosts[@]}" -H "$2,me@node1" true >"$job_output" 2>&1 &&
        [ "$(sort "$job_output" | uniq -c | tr -s ' ')" = " 2 --master-addr=$1" ]
}
job_check "nodes do not meet at localhost, with any user" met_at "$(hostname)" me@localhost
job_check "nodes do not meet at 127.0.0.1, with any user" met_at "$(hostname)" me@127.0.0.1
job_check "nodes meet at another host" met_at node0 me@node0

# This machine's names and addresses need no ssh; an address of another machine does.
mkdir "$job_folder/path"
printf '#!/bin/sh\necho "$*" >>"%s"\nexit 255\n' "$job_folder/asked" >"$job_folder/path/ssh"
chmod +x "$job_folder/path/ssh"
here()
{
    PATH=$job_folder/path:$PATH job self 4 distrun -H "127.0.0.1:2,localhost,127.0.0.2" "$hello"
    [ ! -e "$job_folder/asked" ] && [ "$(grep -c 'of 4: sum 6$' "$job_output")" = 4 ]
}
job_check "this machine is used without ssh" here
PATH=$job_folder/path:$PATH job_fails "host 192.0.2.1 ended first, with exit code 255" self 2 \
    distrun -H "$(hostname),192.0.2.1" sleep 50
job_check "another host is reached by ssh, with keepalive messages" \
    grep -q -- '-o ServerAliveInterval=[0-9]* 192.0.2.1 sh$' "$job_folder/asked"
job_check "no ssh is used for this machine" [ "$(wc -l <"$job_folder/asked")" = 1 ]
lossless()
{
    "$builddir/distrun" "${two[@]}" sh -c 'seq -f "%.0f $RANK of these lines" 1 40000' 2>/dev/null >"$job_folder/lines"
    for rank in 0 3; do
        seq -f "[$rank]:%.0f $rank of these lines" 1 40000 |
            cmp - <(grep "^\[$rank\]:" "$job_folder/lines") || return 1
    done
    [ "$(wc -l <"$job_folder/lines")" = 160000 ]
}
job_check "no line is lost or mixed" lossless

# ---- failures ----

job_fails "exitcode  : 7 (pid: " self 4 distrun "${two[@]}" sh -c '[ $RANK != 3 ] || exit 7; sleep 50'
job_check "the exit code is that of the worker" [ "$job_status" = 7 ]
job_check "one failure block, and no other report" [ "$(grep -c FAILED "$job_output"; grep -c ended "$job_output")" = $'1\n0' ]
job_fails "restarting all workers" self 4 distrun "${two[@]}" --max-restarts 1 sh -c '[ $RANK != 3 ] || exit 7; sleep 50'
job_check "a restart is reported once" [ "$(grep -c 'restarting all workers$' "$job_output")" = 1 ]
unreachable()
{
    job_fails "host nowhere ended first, with exit code 255" self 3 distrun "${two[@]},nowhere:1" sleep 50
    job_check "exit code 1" [ "$job_status" = 1 ]
}
job_parallel unreachable
job_fails "host nowhere ended first, with exit code 255: see the message of its remote shell" \
    self 1 distrun "${hosts[@]}" -H nowhere:1 true
job_check "the only host: exit code 1" [ "$job_status" = 1 ]
job_fails "host deaf ended first, with exit code 0: its remote shell must forward its standard input" \
    self 1 distrun "${hosts[@]}" -H deaf:1 true
job_check "nothing ran: exit code 1" [ "$job_status" = 1 ]

is_reported_lost()
{
    "$builddir/distrun" "${hosts[@]}" -H gone:1 true >"$job_output" 2>&1
    [ $? = 137 ] && grep -q "host gone ended first, with exit code 137: the host was lost" "$job_output"
}
job_check "an only host that is lost silently is reported" is_reported_lost

# wrong TEXT OPTION...: the command line is refused with TEXT.
wrong() { job_fails "$1" self 0 distrun "${@:2}" echo ran; job_check "exit code 2" [ "$job_status" = 2 ]; }
bad=$job_folder/bad
wrong "cannot read the hostfile /no/such/file" --hostfile /no/such/file
: >"$bad"
wrong "$bad: the hostfile contains no host" --hostfile "$bad"
printf 'localhost\nnode1 slots=many\n' >"$bad"
wrong "$bad line 2: \"many\" is not a number of slots" --hostfile "$bad"
wrong '-H: "0" is not a number of slots' -H node1:0
wrong '-H: "-oProxyCommand=x" is not a host name' --hosts=-oProxyCommand=x
wrong "5 processes, but the 2 hosts have 4 slots" "${two[@]}" -n 5
wrong "with hosts specify either -n" "${two[@]}" -n 2 --nproc-per-node 2
wrong "remove --node-rank" "${two[@]}" --nnodes 2
wrong "--nnodes 3:4, but there are 2 hosts" "${two[@]}" --nnodes 3:4
wrong "--nnodes 1:1, but there are 2 hosts" "${two[@]}" --nnodes 1:1
wrong "--nnodes must be" "${two[@]}" --nnodes 2:
wrong "replace -n by slots" "${two[@]}" --nnodes 1:2 -n 2
wrong "either -H or --hostfile" "${two[@]}" --hostfile "$job_folder/hostfile"
wrong "program 'no-such-shell' not found in PATH" --remote-shell "no-such-shell -v" -H node1
job_fails "program 'no-such-program' not found in PATH" self 0 distrun "${two[@]}" no-such-program
job_check "exit code 2" [ "$job_status" = 2 ]

# ---- signals ----

# begins COMMAND...: starts a job whose workers ignore SIGTERM and SIGINT and have children; sets
# $pid.
begins()
{
    job_id=$$.ends.$((ends = ${ends-0} + 1)).$BASHPID
    TEST_JOB=$job_id job_background "$builddir/distrun" "${two[@]}" sh -c "$1"
    pid=$!
    for ((try = 0; try < 400; try++)); do
        [ "$(grep -c ready "$job_output")" = 4 ] && break
        sleep 0.05
    done
}
all_exited() { for ((try = 0; try < 50; try++)); do [ -z "$(job_processes)" ] && return; sleep 0.1; done; false; }
stubborn='trap "" TERM INT; sleep 40 & echo ready; for i in 1 2 3 4; do sleep 10; done'
# ends NAME CODE COMMAND...: COMMAND sends signals that must end the job with that code.
ends()
{
    begins "${workers-$stubborn}"
    "${@:3}"
    wait $pid 2>/dev/null
    local code=$?
    job_check "$1: exit code $2" [ $code = "$2" ]
    job_check "$1: nothing is left after 5 s" all_exited
}
starter() { job_agent "$pid"; }
interrupted()
{
    workers='trap "echo told; exit 0" INT; echo ready; for i in $(seq 400); do sleep 0.1; done'
    ends "SIGINT" 130 eval 'kill -INT $pid'
    job_check "each worker gets the signal" [ "$(grep -c told "$job_output")" = 4 ]
    job_check "SIGINT is reported once" [ "$(grep -c 'stopped by SIGINT' "$job_output")" = 1 ]
}
twice() { kill -INT $pid; sleep 0.4; kill -INT $pid; }
kill_all() { kill -KILL $pid $(starter); }
job_parallel ends "SIGKILL of distrun" 137 eval 'kill -KILL $pid'
job_parallel ends "SIGKILL of the starter" 137 eval 'kill -KILL $(starter)'
job_parallel ends "SIGKILL of both" 137 kill_all
job_parallel ends "SIGINT twice" 130 twice
job_parallel interrupted
lost()
{
    begins 'echo ready; sleep 40'
    kill -KILL "$(pgrep -P "$(starter)" -f -- --node-rank=1)"
    wait $pid
    job_check "an agent that is lost: exit code 137" [ $? = 137 ]
    job_check "its host is named" grep -q "host localhost ended first, with exit code 137" "$job_output"
    job_check "an agent that is lost: nothing is left after 5 s" all_exited
}
job_parallel lost
alone()
{
    two=("${hosts[@]}" -H localhost:4)
    begins 'echo ready; sleep 40'
    kill -KILL "$(pgrep -P "$(starter)" -f -- '--from-starter ')"
    wait $pid
    job_check "an only host that is lost: exit code 137" [ $? = 137 ]
    job_check "an only host that is lost is reported" \
        grep -q "host localhost ended first, with exit code 137: its remote shell was killed" "$job_output"
    job_check "an only host that is lost: nothing is left after 5 s" all_exited
}
job_parallel alone
passed_on()
{
    begins 'trap "echo told; exit 0" USR1; echo ready; for i in $(seq 400); do sleep 0.1; done'
    kill -USR1 $pid
    wait $pid
    job_check "other signals are passed on" [ "$?.$(grep -c told "$job_output")" = 0.4 ]
}
job_parallel passed_on

# ---- hosts that are lost and rejoin ----

# elastic CODE NODE: the host of that node rank is lost; the other host continues alone, and then
# both. Workers exit with CODE after the restart with both. The job ends if a worker fails, or if
# the host where the nodes meet is lost.
elastic()
{
    local pid
    # shellcheck disable=SC2016
    job_background "$builddir/distrun" "${hosts[@]}" -H "127.0.0.1,localhost" --nnodes 1:2 --max-restarts 2 \
        --rdzv-conf join=now sh -c 'echo "$TORCHELASTIC_RESTART_COUNT: $RANK of $WORLD_SIZE"
            [ $WORLD_SIZE = 1 ] || [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit '"$1"'
            exec sleep 50'
    pid=$!
    job_until eval '[ "$(grep -c "0: . of 2" "$job_output")" = 2 ]'
    kill -KILL "$(pgrep -P "$(starter)" -f -- --node-rank="$2")"
    wait $pid
    code=$?
}
comes_back()
{
    elastic 0 1
    job_check "a lost host rejoins: exit code 0" [ $code = 0 ]
    job_check "the other host continued alone" grep -q '^\[0\]:1: 0 of 1' "$job_output"
    job_check "then both hosts continued together" [ "$(grep -c '1: [01] of 2' "$job_output")" = 2 ]
    job_check "the retry is reported" grep -q 'host localhost ended with exit code 137: starting its agent again' "$job_output"
}
comes_and_fails()
{
    elastic 7 1
    job_check "a lost host rejoins, and the job fails: exit code 7" [ $code = 7 ]
}
place_lost()
{
    elastic 0 0
    job_check "the host where the nodes meet is lost: exit code 137" [ $code = 137 ]
    job_check "the error names that host" grep -q 'host 127.0.0.1 ended first.*it is the rendezvous of the nodes' "$job_output"
}
if [ -z "${CHECK_SHORT-}" ]; then
    job_parallel comes_back
    job_parallel place_lost
    [ -n "${CHECK_LONG-}" ] && job_parallel comes_and_fails
fi

# ---- the token of nodes that were started by hand ----

# nodes_meet SECONDS FILE: starts a node with the token in FILE and one with the first token; the first
# to start serves.
node() { "$builddir/distrun" --nnodes 2 --rdzv-endpoint "127.0.0.1:$port" --rdzv-conf "join_timeout=$seconds" "$@" "$hello"; }
nodes_meet()
{
    local port seconds=$1
    port=$(job_port)
    node --secret-file "$job_folder/secret" >"$job_output.0" 2>&1 &
    DIST_SECRET_FILE=$2 node >"$job_output" 2>&1
    wait $!
}
if grep -q '^#define HAVE_OPENSSL' "$builddir/config.h"; then
    (umask 077; echo 0123456789abcdef >"$job_folder/secret"; echo 0123456789abcdeF >"$job_folder/other")
    job_parallel job_check "two nodes with a secret" nodes_meet 60 "$job_folder/secret"
    refused()
    {
        job_check "two nodes with two secrets do not meet" eval '! nodes_meet 2 "$job_folder/other"'
        job_check "a node with another secret is refused" grep -q "with another secret" "$job_output" "$job_output.0"
    }
    job_parallel refused
else
    job_skip "two nodes with a secret" "built without OpenSSL"
fi
echo 0123456789abcdef >"$bad"
chmod 644 "$bad"
wrong "$bad can be opened by other users: chmod 600 it" --secret-file "$bad"
chmod 600 "$bad"
echo short >"$bad"
wrong "$bad is too short" --secret-file "$bad"
printf '%0256d\n' 0 >"$bad"
job self 1 distrun --secret-file "$bad" true
printf '%0257d' 0 >"$bad"
wrong "$bad is too long" --secret-file "$bad"
wrong "/no/such/secret cannot be read" --secret-file /no/such/secret
wrong "$job_folder is not a file" --secret-file "$job_folder"
job_collect

# ---- namespaces as hosts ----

cluster=$srcdir/bench/netns-cluster
[[ $cluster == /* ]] || cluster=$PWD/$cluster
if ! "$cluster" true 2>"$job_folder/why"; then
    job_skip "namespaces as hosts" "$(tail -n 1 "$job_folder/why")"
    exit
fi
training="$builddir/train_mnist --dummy --reproducible --train-samples 400 --test-samples 40 --max-steps 3 --epochs 1 --batch-size 60"
hash_of() { sed -n 's/^.*Parameter hash: \([0-9a-f]*\) (4 ranks agree).*/\1/p' "$job_output"; }
same() { [ -n "$reference" ] && [ "$(hash_of)" = "$reference" ]; }
# shellcheck disable=SC2086
job shell 4 $training
reference=$(hash_of)
cat >"$job_folder/near" <<END
[ \$RANK = 0 ] || exit 0
exec "$builddir/distrun" --remote-shell "$BASH $cluster --enter" "\$@"
END
printf 'node0\nnode1\nnode2\nnode3\n' >"$job_folder/hostfile"
# shellcheck disable=SC2086
{
    job self 4 "$cluster" -k 2 "$BASH" "$job_folder/near" -H node0:2,node1:2 $training
    job_check "2 hosts by -H: the parameters equal those of the shell loop" same
    [ -z "${CHECK_SHORT-}" ] || exit 0
    job self 4 "$cluster" -k 4 "$BASH" "$job_folder/near" --hostfile "$job_folder/hostfile" $training
    job_check "4 hosts by --hostfile: the same parameters" same
}
