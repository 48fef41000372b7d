#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dist_bench: every collective with its results checked, each format, several libraries in turns,
# libraries that misbehave, and the comparison with an earlier run.
. "$srcdir/tests/support/job.sh"

says() { grep -qE -- "$1" "$job_output"; }
silent_about() { ! grep -qE -- "$1" "$job_output"; }
# rows WORD COUNT: there are COUNT lines of csv that end in WORD.
rows() { [ "$(grep -c "^[a-z_]*,[0-9].*,$1\$" "$job_output")" = "$2" ]; }
is_json() { "$python" -c 'import json, sys; json.load(sys.stdin)' <"$job_output"; }
point="-t 0.01 -r 2"
kinds=$(sed -n '/define OPERATION_MAP/,/[^\\]$/p' "$srcdir/bench/measure.h" | grep -c '  X([a-z]')

# ---- libdist alone ----

# shellcheck disable=SC2086
for ranks in 2 3; do
    job self $ranks dist_bench -n $ranks --backend gloo $point -m 1000:1000 -c --format csv all
    job_check "$ranks ranks: every collective is right" rows right "$kinds"
    job self $ranks dist_bench -n $ranks --backend gloo $point -m 4000:4000 -c -l -k 1 -T int64 \
        --mem dist --format csv all
    job_check "$ranks ranks: in place, from root 1, in memory of dist_alloc" rows right "$kinds"
done
# Many buffers, each allocated and checked separately.
# shellcheck disable=SC2086
for mem in malloc dist; do
    job self 3 dist_bench -n 3 --backend gloo $point -m 30000:30000 -c --mem $mem --buffers 100 \
        --format csv all_reduce all_gather
    job_check "100 buffers of $mem: every one is right" rows 100,row,right 2
done
# shellcheck disable=SC2086
job self 2 dist_bench -n 2 --backend gloo $point -m 1000:1000 --buffers 7 --format json all_reduce
job_check "the number of buffers is in the JSON" says '"buffers": 7,'
# OSU's timing, for everything, of one library and of several.
# shellcheck disable=SC2086
job self 3 dist_bench -n 3 --backend gloo $point -m 3000:3000 -c --timing osu --format csv all
job_check "timed as OSU's programs do: every collective is right" rows 1,osu,right "$kinds"
# shellcheck disable=SC2086
job self 2 dist_bench -n 2 --compare gloo,gloo/dist,limit $point -m 64:64 --timing osu --buffers 16 \
    --save "$job_folder/osu.json" all_reduce gather
job_check "the table says how it was timed" says "^# gather .*timed as OSU's programs do"
job_check "the timing is in the JSON" grep -q '"buffers": 16, "timing": "osu",' "$job_folder/osu.json"
# shellcheck disable=SC2086
for op in avg prod min max premul_sum; do
    job self 3 dist_bench -n 3 --backend gloo $point -m 999:999 -c -T bfloat16 -o $op --format csv \
        all_reduce reduce_scatter
    job_check "$op of bfloat16" rows right 2
done

# GPU memory, provided by the stand-in.
nccl=nccl
[ -e "$builddir/.libs/dist_nccl.so" ] || { job_skip "nccl" "there is no module nccl"; nccl=; }
gpu="$nccl gloo"
job_has_modules || gpu=
for backend in $gpu; do
    kind=all
    [ $backend = nccl ] || kind="all_reduce all_to_all latency"
    # shellcheck disable=SC2086
    DIST_GPU_DRIVER=$builddir/.libs/standin_cuda.so DIST_NCCL_LIBRARY=$builddir/.libs/standin_cuda.so \
        job self 3 dist_bench -n 3 --backend $backend --mem cuda -i 2 -m 3000:3000 -c --format csv $kind
    job_check "$backend, memory of a GPU: right" rows right "$([ "$kind" = all ] && echo "$kinds" || echo 3)"
done
if [ -n "$nccl" ]; then
    DIST_GPU_DRIVER=$builddir/.libs/standin_cuda.so DIST_NCCL_LIBRARY=$builddir/.libs/standin_cuda.so \
        job self 2 dist_bench -n 2 --backend nccl --mem dist -l -i 2 -m 64:64 -c --format csv all_gather
    job_check "nccl's dist_alloc: right" rows right 1
fi

job self 2 dist_bench -n 2 --backend gloo -i 20 -x 2 -m 16:64 -f -c all_reduce barrier
job_check "the lines of OSU" says '^64( +[0-9]+\.[0-9]{2}){3} +20 +Pass'
job_check "the head of OSU" says '^# Size +Avg Latency\(us\) +Min Latency\(us\)'
job_fails "unknown operation" self 2 dist_bench -n 2 -c 1 all_reduce
job self 2 dist_bench -n 2 --backend gloo --iters 5 -b 64 -e 64 --check=1 --format nccl all_reduce
job_check "the lines of nccl-tests" says \
    '^ +64 +16 +float32 +sum +-1( +[0-9.]+){3} +0( +[0-9.]+){3} +0$'
job_check "the end of nccl-tests" says '^# Out of bounds values : 0 OK'
job openmpi 2 dist_bench -i 5 -m 64:64 bw bibw latency
[ -z "$job_status" ] || job_check "a line for each of the three" says '^64 +[0-9.]+$'
job mpich 2 dist_bench -i 5 -m 64:64 -c all_reduce
job shell 2 dist_bench -i 5 -m 64:64 -c --backend gloo all_to_all

# ---- several libraries ----

list=gloo,gloo/registered,gloo/dist
[ -z "$OPENMPI_RUN" ] || list=$list,mpi
# shellcheck disable=SC2086
job self 2 dist_bench -n 2 --compare $list --limit $point -m 1024:1024 all_reduce broadcast
job_check "each library has its time and its ratio" says '^ +1024 +[0-9.]+( +[0-9.]+ +[0-9.]+){2,}$'
job_check "the limit has a description" says '^# limit: a bare loop'
# shellcheck disable=SC2086
job self 3 dist_bench -n 3 --compare gloo+DIST_TRANSPORT=tcp,limit $point -m 3000:3000 \
    --format csv all
job_check "all results of both are right" rows right $((2 * kinds))
# shellcheck disable=SC2086
job self 3 dist_bench -n 3 --compare limit $point -m 3000:3000 -l -k 2 -T uint8 --format csv all
job_check "the bare loop is right in place" rows right "$kinds"
# shellcheck disable=SC2086
job self 2 dist_bench -n 2 --compare gloo $point -m 64:64 --format json all_reduce
python=$(command -v python3)
if [ -n "$python" ]; then
    job_check "the output is valid JSON" is_json
else
    job_skip "it is JSON" "no python3 here"
fi

# shellcheck disable=SC2086
job self 2 dist_bench -n 2 --limit $point -m 64:1K --format csv all_reduce
grep ',' "$job_output" >"$job_folder/curves.csv"
job_check "curves of the csv" eval '"$builddir/bench/draw" "$job_folder/curves.csv" |
    grep -q "<title>limit, 1 KiB: "'
# shellcheck disable=SC2086
job self 2 dist_bench -n 2 --backend gloo $point -m 64:1K --timing osu --format csv all_reduce
grep ',' "$job_output" >"$job_folder/osu.csv"
job_check "curves with OSU's timing" eval '"$builddir/bench/draw" "$job_folder/osu.csv" | grep -q "OSU"'
page=$job_folder/page.html
# shellcheck disable=SC2086
job self 2 dist_bench -n 2 --limit $point -m 64:1K --html "$page" all_reduce
job_check "the page has curves" grep -q '<svg' "$page"
job_check "the page names the libraries" grep -q 'a bare loop' "$page"
# shellcheck disable=SC2086
job_fails "/none/page.html" self 2 dist_bench -n 2 --limit $point -m 64:64 \
    --html /none/page.html all_reduce

# ---- libraries that misbehave ----

peers=$job_folder/peers
mkdir "$peers"
# peer NAME COMMAND...: makes a driver that runs the command with the number of ranks as its
# argument.
peer()
{
    printf '#!/bin/sh\n[ "$1" = --probe ] && { echo Fake 1.0; exit 0; }\nexec %s "$1"\n' \
        "${*:2}" >"$peers/$1"
    chmod +x "$peers/$1"
}
fake=$builddir/tests/jobs/bench_fake
for mode in 1000 2000 silent few negative garbage dies ranks mute wrong failed unsupported; do
    peer "fake-$mode" "$fake" $mode
done
peer fails "sh -c 'echo the wrong shoes >&2; exit 3'"
peer crowd "sh -c 'echo \$OMPI_MCA_rmaps_base_oversubscribe\$PRTE_MCA_rmaps_default_mapping_policy; exit 3'"
peer hangs "sleep 300 #"
printf '#!/bin/sh\necho not on a Sunday >&2\nexit 77\n' >"$peers/fake-refuses"
chmod +x "$peers/fake-refuses"
export DIST_BENCH_PEERS=$peers

# A contestant that waits for missing ranks waits for the timeout; the other cases must not reach
# theirs.
in_vain="dist_bench -n 2 $point --timeout 5 -m 64:128 --compare"
compare=${in_vain/timeout 5/timeout 60}
# shellcheck disable=SC2086
{
    job self 2 $compare fake-1000,fake-2000 all_reduce
    job_check "times are those that the ranks report" says '^ +128 +1\.00 +2\.00 +2\.00$'
    job_fails "only 0 of its 2 ranks connected within 5 s" self 2 $in_vain fake-1000,hangs \
        all_reduce
    job_check "the other libraries are measured" says '^ +128 +1\.00 +- +-$'
    job_fails "it ended with exit code 3 before its ranks had connected; its output: the wrong shoes" \
        self 2 $compare fake-1000,fails all_reduce
    job_fails "its output: 1:oversubscribe" self 2 "$(command -v env)" -u OMPI_MCA_rmaps_base_oversubscribe \
        -u PRTE_MCA_rmaps_default_mapping_policy "$builddir/"$compare fake-1000,crowd all_reduce
    job_fails "fake-refuses is excluded: not on a Sunday" self 2 $compare fake-1000,fake-refuses \
        all_reduce
    job_fails "2 of its ranks did not answer within 5 s" self 2 \
        $in_vain fake-1000,fake-silent all_reduce
    for mode in few negative garbage; do
        job_fails "expected 3 times" self 2 $compare fake-1000,fake-$mode all_reduce
        job_check "the other libraries are measured" says '^ +128 +1\.00 +- +-$'
    done
    job_fails "has exited" self 2 $compare fake-1000,fake-dies all_reduce
    job_fails "expected hello from one of 2 ranks" self 2 $compare fake-1000,fake-ranks all_reduce
    job_fails "expected hello from one of 2 ranks" self 2 $compare fake-1000,fake-mute all_reduce
    job_fails "WRONG RESULT: because of the fake" self 2 $compare fake-1000,fake-wrong all_reduce
    job_check "the table shows wrong" says '^ +128 +1\.00 +wrong +-$'
    job_fails "fake-failed is excluded: because of the fake" self 2 $compare fake-1000,fake-failed \
        all_reduce
    job self 2 $compare fake-1000,fake-unsupported all_reduce
    job_check "an unsupported collective is no failure" says 'fake-unsupported: all_reduce of 64 bytes'
}
job_fails "no peer 'nobody'" self 2 dist_bench -n 2 --peer nobody barrier

# ---- an earlier run ----

saved=$job_folder/saved.json
# shellcheck disable=SC2086
if ! grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    job self 2 $compare fake-1000 --save "$saved" all_reduce
    job_fails "built without jansson" self 2 $compare fake-1000 --baseline "$saved" all_reduce
else
    job self 2 $compare fake-1000 --save "$saved" all_reduce
    peer fake-1000 "$fake" 1050
    job self 2 $compare fake-1000 --baseline "$saved" all_reduce
    job_check "5 % slower is within the tolerance" says '^all_reduce +128 +fake-1000 .* 1\.05$'
    job_fails "SLOWER" self 2 $compare fake-1000 --baseline "$saved" --tolerance 2 all_reduce
    job_check "slower than the tolerance: exit 3" test "$job_status" = 3
    job_fails "no measurement in common with this run" self 2 $compare fake-1000 --baseline "$saved" reduce
    job_fails "it was saved with 2 ranks" self 3 dist_bench -n 3 $point --compare gloo \
        --baseline "$saved" -m 64:64 all_reduce
    echo '{"dist_bench": 2, "ranks": 2}' >"$saved"
    job_fails "not written by --save" self 2 $compare fake-1000 --baseline "$saved" all_reduce
    printf '{"dist_bench": 1,\n "results": [}' >"$saved"
    job_fails "saved.json: line 2: " self 2 $compare fake-1000 --baseline "$saved" all_reduce
    job_fails "No such file" self 2 $compare fake-1000 --baseline "$saved.not" all_reduce
fi

# ---- a rank that dies ----

killed()
{
    local worker
    job_background "$builddir/dist_bench" -n 2 --backend gloo -t 60 -b 4 -e 4 all_reduce
    # The libtool wrapper has other children first.
    job_until eval '[ "$(pgrep -cP $!)" = 2 ] && worker=$(pgrep -nP $! -f all_reduce)'
    kill -9 "$worker"
    wait $!
    [ $? = 137 ] && grep -q "^dist_bench: rank [01] (pid $worker) was ended by signal 9" "$job_output"
}
job_check "dist_bench names a rank that was killed" killed

# Runs as a user who may have two processes: the error must not blame the end of the rank that was
# started.
process_user=(setpriv --reuid $((50000 + $$ % 10000)) --clear-groups)
process_limit()
{
    LD_LIBRARY_PATH=$builddir/.libs "${process_user[@]}" "$BASH" -c 'ulimit -u 2 && exec "$@"' limited \
        "$builddir/.libs/dist_bench" -n 3 --backend gloo all_reduce >"$job_output" 2>&1
    [ $? = 1 ] && grep -qF 'cannot start rank 1 of 3: ' "$job_output"
}
if [ "$(id -u)" = 0 ] && "${process_user[@]}" test -x "$builddir/.libs/dist_bench" 2>/dev/null; then
    job_check "dist_bench names the rank that a limit on processes keeps from starting" process_limit
fi

# ---- misuse ----

job self 1 dist_bench --help
job_check "help has the table" says '--baseline=FILE'
job_check "help does not list internal options" silent_about --worker
job self 1 dist_bench --version
job_fails "no operation: name a collective" self 1 dist_bench -n 2
job_fails "unknown operation 'all_redcue'" self 1 dist_bench -n 2 all_redcue
job_fails "set their number with -n" self 1 dist_bench --compare gloo all_reduce
job_fails "--ranks: 'two' is not a whole number" self 1 dist_bench -n two all_reduce
job_fails "expected [MIN:]MAX" self 1 dist_bench -n 2 -m 1:x all_reduce
job_fails "the smallest size exceeds the largest" self 1 dist_bench -n 2 -m 8:4 all_reduce
job_fails "unknown type, expected float32" self 1 dist_bench -n 2 -T float31 all_reduce
job_fails "the ranks are 0 to 1" self 1 dist_bench -n 2 -k 2 reduce
job_fails "unknown or ambiguous option --frobnicate" self 1 dist_bench --frobnicate all_reduce
job_fails "expected VARIABLE=VALUE after +" self 1 dist_bench -n 2 --compare gloo+x all_reduce
DIST_GPU_DRIVER=/none/libcuda.so job_fails "GPU driver" self 1 dist_bench -n 2 --backend gloo --mem cuda all_reduce
job_fails "omit -n" shell 1 dist_bench -n 2 all_reduce
job_check "misuse: exit 2" test "$job_status" = 2
job_fails "without the launcher" shell 1 dist_bench -n 2 --compare gloo all_reduce
