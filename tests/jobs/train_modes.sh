#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ways to average gradients: the losses equal those of one process, for any number of ranks and any
# way; with --reproducible bit by bit.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/training.sh"

steps=12
worlds="1 3" plain="2 3 4" same="2 4"
[ -z "${CHECK_LONG-}" ] || steps=100 worlds="1 2 3 4 6 8"
[ -z "${CHECK_SHORT-}" ] || worlds=3 plain=3 same=4

# train NAME RANKS ARGS...: makes $steps steps of the small network. Batches of 96, and quarters of
# them, are divisible by 1, 2, 3, 4, 6 and 8.
train()
{
    job self "$2" train_mnist --multiprocessing-distributed --world-size "$2" --dist-backend gloo \
        --arch mlp --optimizer sgd --lr 0.01 --train-samples 9600 --test-samples 64 --seed 3 \
        --max-steps $steps --batch-size 96 --loss-log "$job_folder/$1" "${@:3}"
}

differ() { job_check "losses of $1 and $2 differ" bash -c "! cmp -s '$job_folder/$1' '$job_folder/$2'"; }

# As one process, in one batch and in three, in one bucket and in many.
train one 1
for ranks in $plain; do
    train plain$ranks $ranks --bucket-mb 0.02
    agree 1e-4 one plain$ranks
done
# At ten times this rate the cnn's losses diverge within 100 steps, also those of one process that
# adds the gradients of two halves: rounding errors grow tenfold every ten steps.
if [ -z "${CHECK_SHORT-}" ]; then
    train cnn1 1 --arch cnn --batch-size 48 --train-samples 6000 --lr 0.001
    train cnn2 2 --arch cnn --batch-size 48 --train-samples 6000 --lr 0.001
    agree 1e-4 cnn1 cnn2
fi

# With Adadelta the losses of the cnn diverge: for some steps rounding errors grow tenfold in each,
# and after 50 steps they differ by some percent. So do those of one process after a change of the
# last bit of a single weight. So 2 ranks continue several times from the state of one process,
# where a fault would be visible.
if [ -z "${CHECK_SHORT-}" ] && grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    steep=(--arch cnn --optimizer adadelta --lr 1 --batch-size 48)
    times=2 pause=8
    [ -z "${CHECK_LONG-}" ] || times=10
    for ((time = 1; time <= times; time++)); do
        steps=$pause train steep1 1 "${steep[@]}" --checkpoint "$job_folder/from1"
        cp "$job_folder/from1" "$job_folder/from2"
        rm -f "$job_folder"/steep?
        steps=3 train steep1 1 "${steep[@]}" --checkpoint "$job_folder/from1"
        steps=3 train steep2 2 "${steep[@]}" --checkpoint "$job_folder/from2"
        steps=3 agree 1e-5 steep1 steep2
    done
fi

train clipped 1 --clip 0.1
differ one clipped
for ranks in $worlds; do
    train accumulated$ranks $ranks --batch-size 24 --accumulate 4
    agree 1e-4 one accumulated$ranks
    train clipped$ranks $ranks --clip 0.1
    agree 1e-4 clipped clipped$ranks
    for wire in fp16 bf16 int8; do
        train $wire$ranks $ranks --wire $wire
        agree "$([ $wire = bf16 ] && echo 5e-3 || echo 1e-3)" one $wire$ranks
    done
done

# shared RANKS: a rank has 1/RANKS of the optimizer's state, rounded up to cache lines.
shared()
{
    sed -n 's/^Optimizer state: \([0-9]*\) of \([0-9]*\) bytes per rank .*/\1 \2/p' "$job_output" |
        awk -v n="$1" '{ p = $1 * n / ($2 + 0.5) } END { exit p < 0.99 || p > 1.01 }'
}

# Each rank has a share of the optimizer: equal bits on one machine, except for the norm.
for ranks in $worlds; do
    for how in "--optimizer adadelta" "--accumulate 2"; do
        # shellcheck disable=SC2086
        train whole $ranks $how --batch-size 24
        whole=$(hash_of)
        # shellcheck disable=SC2086
        train zero $ranks $how --batch-size 24 --zero
        job_check "a rank of $ranks has its share of the optimizer's state" shared "$ranks"
        job_check "$ranks ranks, $how: --zero gives the same parameters" \
            test -n "$whole" -a "$whole" = "$(hash_of)"
        agree 1e-6 whole zero
    done
    train zero_clipped $ranks --clip 0.1 --zero
    agree 1e-4 clipped zero_clipped
done
DIST_NODE_MEMORY=0 train zero_network 3 --zero --bucket-mb 0.02
agree 1e-4 one zero_network

# Stopped in the middle, and continued with another number of ranks, with --zero and without.
kept=$job_folder/kept
if grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    half=$((steps / 2))
    for way in "--zero" ""; do
        rm -f "$kept" "$job_folder/rest"
        steps=$half train half 2 --zero --checkpoint "$kept"
        steps=$half train rest 3 $way --checkpoint "$kept"
        sed -n "1,${half}p" "$job_folder/half" >"$job_folder/both"
        cat "$job_folder/rest" >>"$job_folder/both"
        agree 1e-4 one both
    done
else
    job_skip "checkpoints of --zero" "built without jansson"
fi

# Whole runs that are divided differently give equal bits.
same()
{
    job self 1 train_mnist --arch mlp --train-samples 1000 --test-samples 64 --epochs 1 "$@"
    local one other
    one=$(hash_of)
    job_check "the reference run has a hash" test -n "$one"
    for ranks in $same; do
        job self $ranks train_mnist --multiprocessing-distributed --world-size $ranks \
            --dist-backend gloo --arch mlp --train-samples 1000 --test-samples 64 --epochs 1 "$@"
        other=$(hash_of)
        job_check "$ranks ranks, $*: the bits of one" test "$other" = "$one"
    done
}
same --reproducible
same --reproducible --accumulate 3 --batch-size 40 --clip 0.5 --schedule cosine --warmup 7
job_fails "exclude each other" self 1 train_mnist --reproducible --wire bf16

# No step improves the result: the first test remains the best.
cd "$job_folder" || exit 99
job self 2 train_mnist --multiprocessing-distributed --world-size 2 --dist-backend gloo --arch mlp \
    --train-samples 400 --test-samples 64 --epochs 9 --lr 0 --optimizer sgd --patience 2
job_check "the training stops early" test "$(grep -c '^epoch' "$job_output")" = 3
job_check "the training prints that it stops early" grep -q '^stopping early' "$job_output"
if grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    job self 2 train_mnist --multiprocessing-distributed --world-size 2 --dist-backend gloo \
        --arch mlp --train-samples 400 --test-samples 64 --epochs 2 --save-best
    job_check "the best is kept" test -s mnist_mlp_best.safetensors
fi
