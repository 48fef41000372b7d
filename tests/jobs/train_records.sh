#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The records of a training: read back, continued, refused at the start, lost in the middle.
# DIST_TEST_PYTHON: a python with tensorboard.
. "$srcdir/tests/support/job.sh"
# The report uses hwloc, whose PCI module leaks memory and is unloaded before the leak check.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"

python=${DIST_TEST_PYTHON:-$(command -v python3)}
if [ -z "$python" ]; then
    job_skip "records of a training" "no python3 here"
    exit 0
fi
options=(--arch mlp --train-samples 640 --test-samples 50 --dist-backend gloo)
folder=$job_folder/records
mkdir "$folder"
records=(--metrics "$folder/metrics.jsonl" --tensorboard "$folder/board"
    --report "$folder/page.html" --trace "$folder/trace.json")

# reads WHAT ARGS...: checks that the file is as it should be.
reads() { job_check "$*" "$python" "$srcdir/tests/jobs/train_records.py" "$@"; }

# reads_board STEPS TESTS: checks the same with TensorBoard's reader.
reads_board()
{
    if "$python" -c 'import tensorboard' 2>/dev/null; then
        reads tensorboard "$folder/board" "$@"
    else
        job_skip "TensorBoard reads its file" "no tensorboard here"
    fi
}

job shell 3 train_mnist "${options[@]}" --epochs 2 "${records[@]}"
job_check "several lines per epoch" test "$(grep -c '^Train Epoch: 1 ' "$job_output")" = 6
reads metrics "$folder/metrics.jsonl" 22 2
reads trace "$folder/trace.json" 3 22
reads page "$folder/page.html"
job_check "the page is the final one" grep -q '>Ended' "$folder/page.html"
share=$(sed -n 's/^Final: .* communication \([0-9.]*\)%.*/\1/p' "$job_output")
job_check "its share of communication is the terminal's, ${share:-none} %" \
    grep -q "<span>Communication</span><b>${share:-none} %<" "$folder/page.html"
job_fails "the loss is" shell 3 train_mnist "${options[@]}" --optimizer sgd --lr 1e6 \
    --report "$folder/page.html"
job_check "the page shows that it failed, and why" \
    grep -q 'The training failed: .*the loss is\|The training failed: .*rank [12] ' "$folder/page.html"
job_check "the page does not show that it ended" test "$(grep -c '>Failed' "$folder/page.html")" = 1
job_check "no partial file is left" test -z "$(ls "$folder" | grep tmp)"
reads_board 22 2

# A run that was cut in the middle of a line and continues: new lines are appended.
if grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    kept=("${options[@]}" --reproducible --epochs 1 --checkpoint "$folder/kept" "${records[@]}")
    rm -r "$folder/board"
    job shell 2 train_mnist "${kept[@]}" --max-steps 4
    printf '{"event": "st' >>"$folder/metrics.jsonl"
    job shell 2 train_mnist "${kept[@]}"
    reads metrics "$folder/metrics.jsonl" 10 2 1
    reads_board 10 2
    # A run that only tests, after complete epochs: its points are at their last step, inside the
    # charts.
    within() { grep -o '<circle[^>]*cx="[0-9.-]*"' "$folder/tested.html" | sed 's/.*cx="//; s/"$//' |
        awk '$1 < 0 || $1 > 640 { out++ } END { exit !NR || out > 0 }'; }
    job self 1 train_mnist "${options[@]}" --epochs 2 --checkpoint "$folder/epochs"
    job self 1 train_mnist "${options[@]}" --evaluate --resume "$folder/epochs" --report "$folder/tested.html"
    job_check "the report of a test shows its points inside the charts" within
    rm -r "$folder/epochs" "$folder/tested.html"
else
    job_skip "records go on" "built without jansson"
fi

# A path that cannot be written ends the job before it begins, on all ranks.
for record in metrics tensorboard report trace; do
    job_fails "rank 0: --$record /dev/null/x: " shell 2 train_mnist "${options[@]}" \
        --$record /dev/null/x
    job_check "no step was made" test "$(grep -c 'Train Epoch' "$job_output")" = 0
done

# A full disk in the middle is reported once, and training completes.
cat >"$job_folder/limited" <<END
#!/bin/bash
ulimit -f 32
exec "$builddir/train_mnist" "\$@"
END
chmod +x "$job_folder/limited"
job_fails "rank 0: --trace: the file is incomplete" self 2 "$job_folder/limited" "${options[@]}" --multiprocessing-distributed --world-size 2 \
    --epochs 3 --batch-size 4 "${records[@]}"
job_check "ten lines per epoch" test "$(grep -c '^Train Epoch: 1 ' "$job_output")" = 10
for record in metrics tensorboard report trace; do
    job_check "--$record: reported once" \
        test "$(grep -c "warning: --$record .*. Training continues without it" "$job_output")" = 1
done
job_check "the training completed" grep -q '^Final: ' "$job_output"

# At a terminal there is a bar in tqdm's form, in a pipe there is none.
if script=$(command -v script); then
    job self - "$script" -qec "$(printf '%q ' "$builddir/train_mnist" "${options[@]}" --epochs 1)" \
        /dev/null
    bar='Epoch 1: 100%|[^|]*| 10/10 \[[0-9:]*<00:00, [0-9.]*it/s, loss=[0-9.]*\]'
    job_check "a bar" grep -q "$bar" "$job_output"
    job_check "without lines per step" test "$(grep -c 'Train Epoch' "$job_output")" = 0
else
    job_skip "a bar at a terminal" "no script(1) here"
fi
