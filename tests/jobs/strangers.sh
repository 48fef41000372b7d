#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Foreign connections to every socket of a training: it has the same result, and its ranks need
# little more. The long form also prints the cost in time.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/training.sh"

JOB_LIMIT=300
# All foreign connections are made within that share of the time of an undisturbed training.
count=500 share=0.2 epochs=16 turns=1
[ -z "${CHECK_SHORT-}" ] || count=100 epochs=3
[ -z "${CHECK_LONG-}" ] || { count=10000 share=0.5 epochs=300 turns=5 JOB_LIMIT=600; }
# A build without OpenSSL has no token; peers that do not speak the protocol are refused in any
# case.
export DIST_TRANSPORT=tcp XDG_CONFIG_HOME=$job_folder
training="--reproducible --arch mlp --epochs $epochs --train-samples 1920 --test-samples 100 --dist-backend gloo"
most_kib=$((16 << 10)) most_descriptors=400 # above an undisturbed job

# number WORD: prints the number before that word.
number() { awk -v word="$1" '$1 == "strangers:" { for (i = 2; i <= NF; i++) if ($i == word || $i == word ",") print $(i - 1) }' "$job_output"; }
# train STRANGERS RATE
train()
{
    MASTER_PORT=$(job_port)
    export MASTER_PORT
    # shellcheck disable=SC2086
    job self 2 tests/jobs/strangers "$1" "$2" 2 "$builddir/train_mnist" $training
    grep '^strangers' "$job_output" | sed 's/^/      /'
    train_hash=$(hash_of) train_kib=$(number KiB) train_descriptors=$(number descriptors)
    mapfile -t seconds < <(number s) # CPU time of the strangers, of the ranks, and the duration
    echo "$1 ${seconds[2]}" >>"$job_folder/times"
    # The next training may take as long as the ranks' CPU time requires, whatever has delayed this
    # one.
    least=$(awk -v all="${seconds[2]}" -v ranks="${seconds[1]}" 'BEGIN { print ranks / 2 < all ? ranks / 2 : all }')
}
middle() { awk -v of="$1" '$1 == of { print $2 }' "$job_folder/times" | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

for ((turn = 0; turn < turns; turn++)); do
    train 0 1
    hash=$train_hash kib=$train_kib descriptors=$train_descriptors
    job_check "the reference run has a hash" [ -n "$hash" ]
    train $count "$(awk "BEGIN { print $count / ($least * $share) }")"
    job_check "the parameters are equal" [ "$train_hash" = "$hash" ]
    job_check "a rank needs $((train_kib - kib)) KiB more, at most $most_kib" \
        [ $((train_kib - kib)) -le $most_kib ]
    job_check "a rank needs $((train_descriptors - descriptors)) descriptors more, at most $most_descriptors" \
        [ $((train_descriptors - descriptors)) -le $most_descriptors ]
done
awk -v with="$(middle $count)" -v without="$(middle 0)" -v count=$count \
    'BEGIN { printf "# %d strangers: %.2f s, without %.2f s: %.3f times as long\n", count, with, without, with / without }'
