#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Trainings that are killed at any time continue to equal bits; unusable files are refused and not
# changed.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/training.sh"

export DIST_TIMEOUT=60
if ! grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    job_skip "checkpoints" "built without jansson"
    exit 0
fi
options=(--arch mlp --epochs 2 --train-samples 1000 --test-samples 100 --dist-backend gloo)
kept=$job_folder/kept

# Rank 0, which writes, kills itself some time after the first file exists: with a file after each
# step, often while it writes one.
cat >"$job_folder/killed" <<'END'
#!/bin/bash
"$builddir/train_mnist" "$@" &
if [ "$RANK" = 0 ]; then
    until ls "$KEPT"/*.safetensors >/dev/null 2>&1 || ! kill -0 $! 2>/dev/null; do sleep 0.02; done
    sleep 0.0$((RANDOM % 10))
    kill -KILL $!
    exit 0
fi
wait $!
END
chmod +x "$job_folder/killed"
export builddir KEPT=$kept

# continued RANKS OPTION...: killed and resumed; the parameters equal those of an undisturbed
# training.
continued()
{
    local ranks=$1 whole
    shift
    rm -rf "$kept"
    job shell "$ranks" train_mnist "${options[@]}" "$@"
    whole=$(hash_of)
    job_check "the reference run has a hash" test -n "$whole"
    "$BASH" -c 'job_shell "$@"' job_shell "$ranks" "$job_folder/killed" "${options[@]}" "$@" \
        --checkpoint "$kept/" --checkpoint-interval 1 >"$job_output" 2>&1
    job shell "$ranks" train_mnist "${options[@]}" "$@" --checkpoint "$kept/"
    job_check "the training continued from its checkpoint" grep -q '^=> resuming from' "$job_output"
    job_check "the training ended with equal parameters" test "$(hash_of)" = "$whole"
}

continued 2
[ -n "${CHECK_SHORT-}" ] || continued 4 --augment --workers 2
if [ -n "${CHECK_LONG-}" ]; then
    for ranks in 1 2 3 4; do
        continued $ranks
        continued $ranks --reproducible
        continued $ranks --optimizer sgd --lr 0.1 --accumulate 2 --clip 1 --schedule cosine
    done
fi

# A folder keeps the newest files; a damaged one is skipped.
flip() { printf '\x55' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
count() { find "$kept" -name 'step-*' | wc -l; }
few=("${options[@]}" --checkpoint "$kept/")
rm -rf "$kept"
job self 1 train_mnist "${few[@]}" --max-steps 5 --checkpoint-interval 1 --keep 2
whole=$(hash_of)
job_check "two checkpoints are kept" test "$(count)" = 2
flip "$kept/step-000000000005.safetensors" 300000
job self 1 train_mnist "${few[@]}" --max-steps 1 --keep 2
job_check "the damaged one is named" grep -q "step-000000000005.safetensors: tensor fc1.weight is damaged" "$job_output"
job_check "the one before it continues to equal parameters" test "$(hash_of)" = "$whole"
job self 1 train_mnist "${options[@]}" --evaluate --resume "$kept"
job_check "a checkpoint can be tested" test "$(hash_of)" = "$whole"
for file in "$kept"/*; do flip "$file" 300000; done
job_fails "all checkpoints in this directory (2) are damaged" shell 2 train_mnist "${few[@]}"

# A single file. One that does not fit is refused by all ranks, and not changed.
file=$job_folder/file
one=("${options[@]}" --checkpoint "$file" --max-steps 2)
refused()
{
    local text=$1 before
    shift
    before=$(cksum <"$file")
    job_fails "$text" shell 2 train_mnist "${one[@]}" "$@"
    job_check "all ranks fail" test "$(grep -c '^train_mnist: rank [01]: ' "$job_output")" = 2
    job_check "the file is unchanged" test "$(cksum <"$file")" = "$before"
}
job self 1 train_mnist "${one[@]}"
refused "written with --seed 1, not 2" --seed 2
refused "use the same --data" --train-samples 999
refused "no tensor optimizer.sgd in the file" --optimizer sgd
refused "--keep requires a directory" --keep 2
if [ -n "${CHECK_LONG-}" ]; then
    size=$(stat -c %s "$file")
    cp "$file" "$job_folder/good"
    for at in 0 3 8 20 200 $((size / 3)) $((size / 2)) $((size - 1)); do
        head -c "$at" "$job_folder/good" >"$file"
        refused "$file: "
        cp "$job_folder/good" "$file"
        flip "$file" "$at"
        refused "$file: "
    done
    cp "$job_folder/good" "$file"
fi

# A full disk: no step that was saved before is lost.
cat >"$job_folder/full" <<'END'
#!/bin/bash
ulimit -f 100
exec "$builddir/train_mnist" "$@"
END
chmod +x "$job_folder/full"
before=$(cksum <"$file")
job_fails "$file: cannot write: File too large" shell 2 "$job_folder/full" "${one[@]}"
job_check "all ranks fail" test "$(grep -c '^train_mnist: rank [01]: ' "$job_output")" = 2
job_check "the file is unchanged" test "$(cksum <"$file")" = "$before"
job_check "no partial file is left" eval '! compgen -G "$file.tmp-*"'
few=("${options[@]}" --max-steps 2)
job_fails "rank 0: --loss-log /dev/full: " self 1 train_mnist "${few[@]}" --loss-log /dev/full
job_fails "rank 0: cannot write to standard output" self 1 \
    "$BASH" -c '"$@" >/dev/full' - "$builddir/train_mnist" "${few[@]}"

# Ranks that were started with different options do not wait for each other.
cat >"$job_folder/other" <<'END'
#!/bin/bash
[ "$RANK" = 1 ] && other=(--batch-size 32)
exec "$builddir/train_mnist" "$@" "${other[@]}"
END
chmod +x "$job_folder/other"
job_fails "the ranks disagree on the option --batch-size" shell 2 "$job_folder/other" "${options[@]}"

# A loss that is not finite is reported and not saved.
rm -f "$file"
job self 1 train_mnist "${one[@]}" --optimizer sgd
broken=("${options[@]}" --checkpoint "$file" --optimizer sgd --lr 1e6 --weight-decay 1e6)
before=$(cksum <"$file")
for mode in --augment --reproducible; do
    job_fails "that are not finite are those of layer" shell 2 train_mnist "${broken[@]}" $mode
    job_check "rank and step are named" grep -Eq '^train_mnist: rank [01]: step [0-9]+: ' "$job_output"
    job_check "all ranks fail" test "$(grep -c '^train_mnist: rank [01]: ' "$job_output")" = 2
done
# Also if it is detected by the test.
job_fails "that are not finite are those of layer" shell 2 train_mnist "${options[@]}" --optimizer sgd \
    --lr 1e6 --train-samples 256 --batch-size 16 --accumulate 4 --epochs 9
job_check "the test is named" grep -Eq '^train_mnist: rank [01]: the test after step 4: ' "$job_output"
job_check "all ranks fail" test "$(grep -c '^train_mnist: rank [01]: ' "$job_output")" = 2
job_check "the file is unchanged" test "$(cksum <"$file")" = "$before"
job_fails "rank 0: step 3: the loss is" shell 2 "$job_folder/full" "${broken[@]}" \
    --checkpoint "$job_folder/second" --checkpoint-interval 2

# Parameters alone restart the optimizer; --checkpoint then saves later states.
(cd "$job_folder" && RANK=0 WORLD_SIZE=1 "$builddir/train_mnist" "${options[@]}" --max-steps 1 --save-model >/dev/null)
rm -f "$file"
job self 1 train_mnist "${one[@]}" --resume "$job_folder/mnist_mlp.safetensors"
job_check "the parameters are loaded" grep -q "^=> loaded checkpoint" "$job_output"
job self 1 train_mnist "${one[@]}" --resume "$job_folder/mnist_mlp.safetensors"
job_check "the checkpoint takes precedence" grep -q "^=> resuming from '$file'" "$job_output"
job_fails "no checkpoint in --checkpoint" self 1 train_mnist "${options[@]}" --evaluate \
    --checkpoint "$job_folder/nothing"
job_fails "/dev/null/x: cannot create" shell 2 train_mnist "${options[@]}" --checkpoint /dev/null/x
job_check "no step was made" test "$(grep -c '^Train Epoch' "$job_output")" = 0
job_fails "nothing: " self 1 train_mnist "${options[@]}" --resume "$job_folder/nothing"

# Other programs can read it.
python=${DIST_TEST_TORCH_PYTHON-python3}
if "$python" -c 'import safetensors.numpy' 2>/dev/null; then
    cat >"$job_folder/read.py" <<'END'
import sys, zlib
from safetensors import safe_open
with safe_open(sys.argv[1], "np") as file:
    notes = file.metadata()
    for name in file.keys():
        assert notes["crc32." + name] == "%08x" % zlib.crc32(file.get_tensor(name).tobytes()), name
    assert notes["step"] == "4", notes
END
    job_check "safetensors for Python reads it" "$python" "$job_folder/read.py" "$file"
else
    job_skip "safetensors for Python reads it" "$python has no safetensors"
fi
