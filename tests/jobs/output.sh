#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The programs' outputs on a full device: each says what could not be written, and ends with 1.
. "$srcdir/tests/support/job.sh"

# full PROGRAM ARGUMENT...: its standard output is full.
full()
{
    local program=$1 status
    "$builddir/$program" "${@:2}" >/dev/full 2>"$job_output"
    status=$?
    job_check "$* to a full device" [ "$status" = 1 ]
    job_check "it says why, once" [ "$(grep -c "^$program: .*cannot write to standard output: No space left" "$job_output")" = 1 ]
}

bench=(-n 2 -t 0.001 -r 1 -m 8:8 --backend gloo)
train=(--multiprocessing-distributed --world-size 1 --dummy --train-samples 64 --test-samples 64 --epochs 1
       --max-steps 2)
if [ -w /dev/full ]; then
    full dist_info
    full dist_info backends --backend gloo --format csv
    full dist_info env --format json
    full dist_info explain all_reduce
    full dist_info memory
    full dist_info topology --ranks 2
    full dist_sim all_reduce
    full dist_sim all_reduce --format json
    full dist_bench "${bench[@]}" all_reduce
    full dist_bench "${bench[@]}" --format json all_reduce
    full train_mnist "${train[@]}"
    for program in dist_info dist_sim dist_bench distrun train_mnist; do
        full $program --help
        full $program --version
    done

    # A device is written in place, and stays a device.
    job_fails "dist_sim: --draw /dev/full: cannot write: No space left" self 1 dist_sim barrier --draw /dev/full
    job_fails "--save /dev/full: cannot write: No space left" self 2 dist_bench "${bench[@]}" \
        --save /dev/full --html /dev/full barrier
    job_check "each file is reported" grep -q -- "--html /dev/full: cannot write: No space left" "$job_output"
    job_fails "--svg /dev/full: cannot write: No space left" self 1 dist_info topology --svg /dev/full
    job_fails "train_mnist: rank 0: --trace: the file is incomplete" self 1 train_mnist "${train[@]}" \
        --trace /dev/full
    job_check "the cause is in the warning" grep -q "warning: --trace /dev/full: No space left" "$job_output"
    job_check "the training came to its end" grep -q "^Final: " "$job_output"
    job_check "it is still a device" [ -c /dev/full ]
else
    job_skip "full devices" "no /dev/full here"
fi

# Known before anything is measured.
job_fails "--html $job_folder/none/page.html: cannot write: No such file" self 2 dist_bench "${bench[@]}" \
    --html "$job_folder/none/page.html" barrier
job_check "nothing was measured" [ "$(wc -l <"$job_output")" = 1 ]

# A reader that has seen enough is no failure to report.
"$builddir/dist_sim" all_reduce 2>"$job_output" | true
job_check "a closed pipe is not reported" [ ! -s "$job_output" ]
