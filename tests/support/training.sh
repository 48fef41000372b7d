# SPDX-License-Identifier: BSD-3-Clause
# Reads the output and the loss logs of train_mnist and train_cifar10; sourced after job.sh.

# Prints the parameters' hash at the end of the last run.
hash_of() { grep -o 'Parameter hash: [0-9a-f]*' "$job_output" | tail -n 1; }

# agree LIMIT NAME NAME: compares the losses of two runs for $steps steps. Their logs are in
# $job_folder.
agree()
{
    job_check "losses of $2 and $3 agree to $1" awk -v limit="$1" -v steps="$steps" \
        -f "$srcdir/tests/jobs/losses.awk" "$job_folder/$2" "$job_folder/$3"
}

# reaches PERCENT: checks the accuracy of the last run, from "Accuracy: 9812/10000".
reaches()
{
    job_check "test accuracy is $1 % or more" awk -v least="$1" '
        match($0, /Accuracy: [0-9]+\/[0-9]+/) {
            split(substr($0, RSTART + 10, RLENGTH - 10), part, "/")
            percent = 100 * part[1] / part[2]
        }
        END { exit !(percent >= least) }' "$job_output"
}
