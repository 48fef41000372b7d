#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dist_info: its output, what it refuses, and that its csv is complete.
. "$srcdir/tests/support/job.sh"

says() { grep -qF -- "$1" "$job_output"; }
lines() { [ "$(wc -l <"$job_output")" = "$1" ]; }
fields() { ! grep -vqE '^[a-z]+,[a-z_]+,[a-z0-9]+,([a-z_]+|-),(yes|no)$' "$job_output"; }

# The number of entries of an X-macro of a header.
entries() { sed -n "/define DIST_$1_MAP/,/[^\\\\]\$/p" "$srcdir/include/dist/$2" | grep -c '  X(.*"'; }
dtypes=$(entries DTYPE dist.h) ops=$(entries OP dist.h) collectives=$(entries COLLECTIVE backend.h)
reducing=4

job self 1 dist_info
job_check "dist_info prints the version" says "libdist 0."
job_check "dist_info prints where it searches for modules" says "${DIST_PLUGIN_PATH%%:*}"
job_check "dist_info lists the backends" grep -qE '^ *gloo +yes ' "$job_output"
DIST_PLUGIN_PATH=$builddir/.libs job self 1 dist_info
job_check "modules of the tests are not listed" eval '! says faulty'

# memory: three lines, yes or no, with advice after each no but one.
advised() { awk '/^  [a-z].* no  /{if (no) exit 1; no = !/DIST_SHM_CMA|CONFIG_TRANS/} /^      [A-Za-z]/{no = 0}
    END{exit no}' "$job_output"; }
job self 1 dist_info memory
job_check "memory lists ways to access memory" \
    test "$(grep -cE '^  [a-z][^ ].*  (yes |no  ) ?[a-zA-Z]' "$job_output")" = 3
job_check "memory advises what to do" advised
DIST_SHM_CMA=0 job self 1 dist_info memory
job_check "memory reports that CMA is not used" grep -qE '\(CMA\) +no ' "$job_output"
job_fails "unknown argument 'all'" self 1 dist_info memory all

# env: all variables of the table, who has set them, and names that are wrong.
own=$(grep -c '^VARIABLE(' "$srcdir/src/base/settings/variables.def")
DIST_ALGO=all_reduce:ring DIST_BACKND=gloo job self 1 dist_info env
job_check "every variable is listed" [ "$(grep -cE '^  DIST_' "$job_output")" = $((own + 1)) ]
job_check "a value and who has set it" grep -qE '^  DIST_ALGO +all_reduce:ring  \[set by .*bash.* \([0-9]+\)\]' \
    "$job_output"
job_check "a default value" grep -qE '^  DIST_TIMEOUT +-  \[default: 300\]' "$job_output"
job_check "a launcher's variable is listed" grep -qE '^  OMPI_COMM_WORLD_RANK ' "$job_output"
job_check "the name that was probably meant" says "did you mean DIST_BACKEND"
DIST_TIMEOUT=abc job self 1 dist_info env
job_check "a wrong value is named" grep -q 'DIST_TIMEOUT is "abc", which is not a whole number' "$job_output"
job openmpi 1 dist_info env
[ -z "$job_status" ] ||
    job_check "a value set by the launcher" grep -qE '^  OMPI_COMM_WORLD_RANK +0  \[set by .*(mpirun|orte|prte)' "$job_output"
DIST_ALGO=$'a"b\\c' job self 1 dist_info env --format json
job_check "its output is valid JSON" python3 -c 'import json, sys
rows = {row["name"]: row for row in json.load(open(sys.argv[1]))}
assert rows["DIST_ALGO"]["value"] == "a\"b\\c" and rows["DIST_TIMEOUT"]["default"] == "300"' "$job_output"
job_fails "unknown argument" self 1 dist_info env all

job self 1 dist_info backends
job_check "backends shows gloo" grep -qx gloo "$job_output"
job_check "backends shows self" grep -qx self "$job_output"
job_check "every collective has a row" says reduce_scatter_v
job_check "there is a matrix" grep -qE '^ *float32( +yes){5}' "$job_output"

job self 1 dist_info backends --backend gloo --format csv
job_check "one line of csv per combination" lines \
    $((dtypes * (reducing * ops + collectives - reducing)))
job_check "its lines are csv" fields
job_check "gloo sums float32" says "gloo,all_reduce,float32,sum,yes"
job_check "a broadcast has no op" says "gloo,broadcast,float32,-,yes"
job openmpi 1 dist_info backends --backend mpi --format csv
[ -z "$job_status" ] || job_check "mpi sends" says "mpi,send,uint8,-,yes"
job mpich 1 dist_info backends --backend mpi
[ -z "$job_status" ] || job_check "mpi has a table" says "every dtype"

# explain: every algorithm of the collective, one of them chosen, and the reason.
algorithms() { grep -c "^ALGORITHM($1, " "$srcdir/src/collectives/algorithms.def"; }
chosen_one() { [ "$(grep -cE ',yes,[a-z]*$' "$job_output")" = 1 ]; }
job self 1 dist_info explain all_reduce --bytes 64K --topology 'node:3 core:2'
job_check "explain prints size and topology" says "blocks of 65536 bytes, 6 ranks on 3 machines"
job_check "explain prints the reason" grep -qE '^Chosen: [a-z_]+, since ' "$job_output"
job self 1 dist_info explain all_gather --bytes 8 --topology node:4 --format csv
job_check "each algorithm has a row" lines $(($(algorithms ALL_GATHER) + 1))
job_check "one is chosen" chosen_one
DIST_ALGO=all_gather:ring job self 1 dist_info explain all_gather --ranks 3 --format csv
job_check "a forced algorithm is chosen" grep -qE '^all_gather,1048576,3,1,ring,.*,yes,' "$job_output"
DIST_TUNING=off job self 1 dist_info explain broadcast --topology node:3
job_check "predictions can be turned off" says "predictions are turned off"
job self 1 dist_info explain reduce --bytes 4K --ranks 2 --dtype float64 --run --format json
job_check "explain measures each algorithm" test "$(grep -c '"measured_s": 0\.' "$job_output")" -ge \
    "$(algorithms REDUCE)"
command -v python3 >/dev/null && job_check "the output of explain is valid JSON" python3 -m json.tool "$job_output" /dev/null
for collective in barrier reduce_scatter gather scatter all_to_all all_gather_v reduce_scatter_v \
    gather_v scatter_v all_to_all_v; do
    job self 1 dist_info explain $collective --bytes 100 --ranks 2 --run --format csv
    job_check "$collective was measured" grep -qE ',[0-9.]+,yes,' "$job_output"
done
job shell 3 dist_info explain broadcast --bytes 1K --run --format csv
job_check "explain measures in a job" grep -qE '^broadcast,1024,3,1,binomial,1,[0-9.]+,[0-9.]+,' \
    "$job_output"
job_fails "in a job of one rank" self 1 dist_info explain reduce --run
job_fails "unknown collective 'send'" self 1 dist_info explain send
job_fails "name a collective" self 1 dist_info explain
job_fails "--bytes: '1X' is not a number of bytes" self 1 dist_info explain reduce --bytes 1X
job_fails "--ranks: 0 is out of range" self 1 dist_info explain reduce --ranks 0
job_fails "omit --topology" self 1 dist_info explain reduce --topology node:2 --run
job_fails "has 2 ranks, not 3" self 1 dist_info explain reduce --topology node:2 --ranks 3

# tune: explain then uses the file that it writes.
export XDG_CACHE_HOME=$job_folder/cache
mkdir "$XDG_CACHE_HOME"
job self 1 dist_info explain reduce --ranks 2
job_check "nothing is measured at first" says "nothing measured"
job self 2 dist_info tune --ranks 2
job_check "tune prints which file it wrote" says "costs were written to $XDG_CACHE_HOME/libdist/tuning-"
job self 1 dist_info explain reduce --ranks 2
job_check "the costs are used" says "Costs: the file $(echo "$XDG_CACHE_HOME" | head -c 20)"
job shell 2 dist_info tune
job_check "tune joins a job" says "costs were written"
job_fails "needs two ranks or more" self 1 dist_info tune
DIST_TUNING=$job_folder/output job_fails "is not off, measure or a valid tuning file" \
    self 1 dist_info explain reduce --ranks 2

# selftest: a correct backend passes, a wrong one fails, and a hanging one is reported.
row() { grep -qE "^ +$1 +[1-9][0-9]+ +[1-9][0-9]+ +[0-9]+ +$2\$" "$job_output"; }
job self 4 dist_info selftest --backend gloo --brief --mode async
job_check "worlds of 1, 2 and 4" eval "row 1 0 && row 2 0 && row 4 0"
job_check "it says that it passed" says "passed: backend gloo conforms"
job self 3 dist_info selftest --transport tcp --ranks 3 --brief --mode blocking --memory any
job_check "selftest prints the transport" says "backend gloo, transport tcp"
job_check "one world only" lines 4
job self 2 "${job_small_stack[@]}" "$builddir/dist_info" selftest --backend gloo --ranks 2 --only barrier --brief
job shell 2 dist_info selftest --backend gloo --only recv --brief
job_check "ranks of a job print their results" row 2 0
if job_has_modules; then
    DIST_FAULTY=op job_fails "failed: backend faulty" \
        self 2 dist_info selftest --backend faulty --ranks 2 --brief
    job_check "the fault is described" says "FAULT all_reduce float32 max, count 37"
    job_check "faults are counted" row 2 '[1-9][0-9]+'
    DIST_FAULTY=crash job_fails "rank 0 was running: gather float32" \
        self 1 dist_info selftest --backend faulty --brief
    DIST_FAULTY=hang job_fails "FAULT the backend hangs in: gather float32" \
        self 1 dist_info selftest --backend faulty --brief --timeout 1
fi
job_fails "there is no module dist_glue.so" self 1 dist_info selftest --backend glue
job_fails "self supports only one rank" self 1 dist_info selftest --backend self --ranks 2
job_fails "name a backend or a transport" self 1 dist_info selftest --brief
job_check "misuse: exit 2" test "$job_status" = 2
job_fails "--ranks: 'x' is not a whole number" self 1 dist_info selftest --backend self --ranks x
job_fails "--only: unknown value 'sned'" self 1 dist_info selftest --backend self --only sned
job self 1 dist_info selftest --help

job self 1 dist_info --help
job_check "help prints the usage" says "usage: dist_info"
job self 1 dist_info --version
job_fails "there is no module dist_glue.so" self 1 dist_info backends --backend glue
job_fails "unknown command 'tables'" self 1 dist_info tables
job_fails "unknown argument 'more'" self 1 dist_info backends more
job_fails "--format: 'xml' is not one of table|csv" self 1 dist_info backends --format xml
job_fails "unknown or ambiguous option --all" self 1 dist_info --all
job_fails "unknown or ambiguous option --backend" self 1 dist_info --backend gloo
job_check "wrong usage is exit 2" test "$job_status" = 2
