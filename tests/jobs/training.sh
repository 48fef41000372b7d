#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The programs of docs/training.md and of bench/training. $DIST_TEST_TORCH_PYTHON is a Python with
# torch.
. "$srcdir/tests/support/job.sh"

export DIST_TIMEOUT=60
absolute() { [[ $1 == /* ]] && echo "$1" || echo "$PWD/$1"; }
says() { grep -qF -- "$1" "$job_output"; }

# The page's programs, each after a line that begins with its name.
awk -v folder="$job_folder" '
    /^\*\*[a-z]+\.(c|py)\*\*/ { split($0, part, "[*][*]"); name = part[2] }
    /^```$/ { file = "" }
    file { print >(folder "/" file) }
    /^```(c|python)$/ { file = name }' "$srcdir/docs/training.md"

compiler=$(sed -n 's/^CC = //p' "$builddir/Makefile")
sanitize=$(sed -n 's/^DISTI_LDFLAGS = //p' "$builddir/Makefile")
if job_has_modules; then
    LD_LIBRARY_PATH=$(absolute "$builddir/.libs")
    export LD_LIBRARY_PATH
    for name in train launch spawn; do
        # shellcheck disable=SC2086
        $compiler -std=gnu11 -Wall -Wextra -Werror -O1 $sanitize "-I$srcdir/include" \
            -o "$job_folder/$name" "$job_folder/$name.c" "-L$LD_LIBRARY_PATH" -ldist >"$job_output" 2>&1
        job_check "docs/training.md: $name.c builds" [ -x "$job_folder/$name" ]
    done
    job shell 2 "$job_folder/train"
    job_check "train.c learns" says "rank 1 of 2: loss 0."
    job shell 2 "$job_folder/launch"
    job_check "launch.c sums" says "rank 1 of 2, local rank 1: sum 1"
    job self 4 "$job_folder/spawn"
    job_check "spawn.c broadcasts" says "rank 3 of 4 has 42"
fi

overlap=(bench/training/overlap --layers 4 --width 64 --rounds 1 --batch 4)
rows() { [ "$(grep -cE '^(same|float16|bfloat16|int8) ' "$job_output")" = 4 ]; }
job shell 2 "${overlap[@]}"
job_check "overlap: a row per format of gradients" rows
job shell 1 bench/training/overlap --help
job_fails "out of range" shell 1 bench/training/overlap --rounds 0

# Counts the bytes of each compression between hosts: half, half, a quarter, plus headers.
cluster=$(absolute "$srcdir/bench/netns-cluster")
halved()
{
    awk '/^same/ { all = $NF } /float16/ { half[++n] = $NF / all } /^int8/ { quarter = $NF / all }
        END { exit !(n == 2 && half[1] > .45 && half[1] < .57 && half[2] > .45 && half[2] < .57 &&
                quarter > .2 && quarter < .32) }' "$job_output"
}
if ! "$cluster" true 2>"$job_folder/why"; then
    job_skip "bytes between hosts" "$(tail -n 1 "$job_folder/why")"
else
    job self 2 "$cluster" "$(absolute "$builddir/bench/training/overlap")" -l 8 -w 256 -r 1 --batch 4
    job_check "compression halves or quarters the bytes" halved
fi

compare=$(absolute "$srcdir/bench/training/compare")
job self 1 "$compare" --help
job_fails "no option --wrong" self 1 "$compare" --wrong
job_fails "models are" self 1 "$compare" --models cnn,lenet
zero=$(absolute "$srcdir/bench/training/zero")
job self 1 "$zero" --help
job_fails "no option --wrong" self 1 "$zero" --wrong
job_fails "no train_mnist in" self 1 "$zero" --build /nowhere
job self 2 "$zero" -b "$(absolute "$builddir")" -n 1,2 -s 1280 -r 1
job_check "zero: a row for each number of ranks, with the same parameters" \
    [ "$(grep -cE '^ +[12] .* same$' "$job_output")" = 2 ]
job_check "zero: the optimizer's state is halved" \
    awk '$1 == 2 { half = $7 > 1 && $8 * 2 < $7 * 1.1 && $8 * 2 > $7 * 0.9 } END { exit !half }' \
    "$job_output"

scaling=$(absolute "$srcdir/bench/training/scaling")
job self 1 "$scaling" --help
job_fails "no option --wrong" self 1 "$scaling" --wrong
job_fails "not a multiple of 2 ranks" self 1 "$scaling" -b "$(absolute "$builddir")" -n 2 -g 5
job self 2 "$scaling" -b "$(absolute "$builddir")" -a mlp -n 2 -s 640 -r 1
job_check "scaling: the ranks beside the limit" says "relative to the limit"
job_check "scaling: a rate for each method" [ "$(grep -cE ' [1-9][0-9.]+( +[0-9]+ %)?$' "$job_output")" = 4 ]

python=${DIST_TEST_TORCH_PYTHON-python3}
if [ -z "${CHECK_LONG-}" ]; then
    job_skip "beside PyTorch" "make check-long does it"
elif ! "$python" -c 'import torch.distributed' 2>/dev/null; then
    job_skip "beside PyTorch" "no torch for $python: set DIST_TEST_TORCH_PYTHON"
else
    # Files that torch leaves are removed with the job's folder.
    export TMPDIR=$job_folder JOB_LIMIT=300 OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
    job self 2 "$compare" -b "$(absolute "$builddir")" -p "$python" -m cnn -n 1,2 -g 64 -s 128 -r 1
    job_check "a row for each number of ranks" [ "$(grep -c '^cnn' "$job_output")" = 2 ]
    job shell 2 "$python" "$job_folder/launch.py"
    job_check "launch.py sums" says "rank 1 of 2, local rank 1: sum 1"
    job shell 2 "$python" "$job_folder/train.py"
    job_check "train.py learns" says "rank 1 of 2: loss 0."
    PORT=$(job_port) job self 4 "$python" "$job_folder/spawn.py"
    job_check "spawn.py broadcasts" says "rank 3 of 4 has 42"
fi
