#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A training that was killed and continues from its checkpoint ends like one that was not
# interrupted.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/training.sh"

file=$job_folder/kept
options=(--reproducible --arch mlp --epochs 20 --train-samples 1200 --test-samples 100 --dist-backend gloo)
kept=("${options[@]}" --checkpoint "$file")

# Rank 1 kills itself in the middle, some steps after the first checkpoint.
cat >"$job_folder/killed" <<END
#!/bin/bash
"$builddir/train_mnist" "\$@" &
if [ "\$RANK" = 1 ]; then
    until [ -e "$file" ] || ! kill -0 \$! 2>/dev/null; do sleep 0.05; done
    sleep 0.0\$((RANDOM % 10))
    kill -KILL \$!
    exit 0
fi
wait \$!
END
chmod +x "$job_folder/killed"

if ! grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    job_skip "checkpoints" "built without jansson"
    exit 0
fi
job shell 2 train_mnist "${options[@]}"
whole=$(hash_of)
job_check "the reference run has a hash" test -n "$whole"
job_fails "rank 1" shell 4 "$job_folder/killed" "${kept[@]}" --checkpoint-interval 3
job shell 2 "${job_small_stack[@]}" "$builddir/train_mnist" "${kept[@]}"
job_check "the training continued from its checkpoint" grep -q '^=> resuming from' "$job_output"
job_check "the training ended with another number of ranks and equal parameters" test "$(hash_of)" = "$whole"
job_check "no partial file is left" eval '! compgen -G "$file.tmp-*"'

job_fails "no tensor optimizer.sgd in the file" shell 2 train_mnist "${kept[@]}" --optimizer sgd
job_fails "use the --arch that" shell 2 train_mnist "${kept[@]}" --arch cnn
truncate -s 100000 "$file"
job_fails "the file is truncated" shell 2 train_mnist "${kept[@]}"
job_check "the error says what to do" grep -q 'replace it with an intact copy' "$job_output"
