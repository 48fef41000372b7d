#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Behaviour common to all programs: on a full device each prints what could not be written, and
# exits with 1; each prints help of any width and its version, and refuses wrong arguments with 2.
. "$srcdir/tests/support/job.sh"

# full PROGRAM ARGUMENT...: runs it with a full device as standard output.
full()
{
    local program=$1 status
    "$builddir/$program" "${@:2}" >/dev/full 2>"$job_output"
    status=$?
    job_check "$* to a full device" [ "$status" = 1 ]
    job_check "$*: the reason is printed once" [ "$(grep -c "^$program: .*cannot write to standard output: No space left" "$job_output")" = 1 ]
}

bench=(-n 2 -t 0.001 -r 1 -m 8:8 --backend gloo)
train=(--multiprocessing-distributed --world-size 1 --dummy --train-samples 64 --test-samples 64 --epochs 1
       --max-steps 2)
if [ -w /dev/full ]; then
    full dist_info
    full dist_info backends --backend gloo --format csv
    full dist_info env --format json
    full dist_info topology --ranks 2
    full dist_sim all_reduce
    full dist_sim all_reduce --format json
    full dist_bench "${bench[@]}" --format json all_reduce
    full train_mnist "${train[@]}"
    for program in dist_bench distrun train_mnist; do full $program --version; done

    # A device is written in place, not replaced.
    job_fails "dist_sim: --draw /dev/full: cannot write: No space left" self 1 dist_sim barrier --draw /dev/full
    job_fails "--save /dev/full: cannot write: No space left" self 2 dist_bench "${bench[@]}" \
        --save /dev/full --html /dev/full barrier
    job_check "each file is reported" grep -q -- "--html /dev/full: cannot write: No space left" "$job_output"
    job_fails "--svg /dev/full: cannot write: No space left" self 1 dist_info topology --svg /dev/full
    job_fails "train_mnist: rank 0: --trace: the file is incomplete" self 1 train_mnist "${train[@]}" \
        --trace /dev/full
    job_check "the cause is in the warning" grep -q "warning: --trace /dev/full: No space left" "$job_output"
    job_check "the training completed" grep -q "^Final: " "$job_output"
    job_check "/dev/full is still a device" [ -c /dev/full ]
else
    job_skip "full devices" "no /dev/full here"
fi

# Detected before anything is measured.
job_fails "--html $job_folder/none/page.html: cannot write: No such file" self 2 dist_bench "${bench[@]}" \
    --html "$job_folder/none/page.html" barrier
job_check "nothing was measured" sh -c '! grep -q barrier "$1"' sh "$job_output"

# A reader that closes the pipe early is not reported as an error.
closed_pipe()
{
    {
        trap '' PIPE
        job_until test -e "$job_folder/closed"
        "$builddir/dist_sim" all_reduce 2>"$job_output"
        echo $? >"$job_folder/code"
    } | { exec <&-; : >"$job_folder/closed"; job_until test -s "$job_folder/code"; }
    [ ! -s "$job_output" ] && [ "$(<"$job_folder/code")" = 1 ]
}
job_check "a closed pipe is not reported" closed_pipe

# ---- help ----

# fits WIDTH: no line of the output is longer or ends with a blank.
unset COLUMNS
fits() { awk -v width="$1" 'length($0) > width || / $/ { print "too long: " $0; bad = 1 } END { exit bad || !NR }' "$job_output"; }
alike()
{
    local status
    COLUMNS=40 "$builddir/$1" "${@:2}" --help >"$job_output" 2>&1
    status=$?
    job_check "$* --help in 40 columns" eval "[ $status = 0 ] && fits 40"
    "$builddir/$1" "${@:2}" --version >"$job_output" 2>&1
    job_check "$* --version" grep -qx "$1 (libdist) [0-9][0-9.]*" "$job_output"
    "$builddir/$1" "${@:2}" --nonsense >"$job_output" 2>&1
    status=$?
    job_check "$* --nonsense" eval "[ $status = 2 ] && grep -q '^$*: unknown or ambiguous option --nonsense' \"$job_output\""
    job_check "and where help is" grep -qxF "Try '$* --help'." "$job_output"
}
commands=$("$builddir/dist_info" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
job_check "dist_info has nine commands" [ "$(wc -w <<<"$commands")" = 9 ]
for program in dist_info dist_sim dist_bench distrun train_mnist; do alike $program; done
for command in $commands; do alike dist_info "$command"; done
"$builddir/dist_info" env -h | cmp -s - <(COLUMNS=80 "$builddir/dist_info" env --help)
job_check "-h is --help, in 80 columns if the width is unknown" [ "${PIPESTATUS[*]}" = "0 0" ]
for line in "dist_info nonsense --help" "dist_info explain" "dist_info flight" "dist_info memory all" \
    "dist_sim" "distrun"; do
    # shellcheck disable=SC2086
    "$builddir/"$line >"$job_output" 2>&1
    job_check "$line: misuse" eval "[ $? = 2 ] && grep -q '^Try ' \"$job_output\""
done
