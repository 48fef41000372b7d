#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/cluster/: the files are well-formed, and their commands train here, with the variables
# that a cluster sets.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "examples/cluster" "the other suite runs them"; exit; }

examples=$srcdir/examples/cluster
reader=$srcdir/tests/jobs/examples_cluster.py
export PATH=$builddir:$PATH

job_check "train.sbatch is bash" "$BASH" -n "$examples/train.sbatch"
if command -v shellcheck >/dev/null; then
    job_check "shellcheck finds nothing in train.sbatch" shellcheck "$examples/train.sbatch"
else
    job_skip "train.sbatch" "no shellcheck here"
fi

if ! python3 -c 'import yaml' 2>/dev/null; then
    job_skip "the files for Kubernetes" "no python3-yaml here"
    exit
fi

yaml=("$examples/kubernetes-job.yaml" "$examples/mpi-operator-job.yaml")
job_check "the fields are valid and agree" python3 "$reader" check "${yaml[@]}"

# A planted fault in each file is found.
sed 's/completions: 4/completions: 3/' "${yaml[0]}" >"$job_folder/job.yaml"
sed 's/slotsPerWorker/slotPerWorker/' "${yaml[1]}" >"$job_folder/mpi.yaml"
for fault in job mpi; do
    job_check "$fault: a fault is found" eval \
        '! python3 "$reader" check "$job_folder/$fault.yaml" 2>"$job_output"'
done

# Starts the pods of an indexed Job as Kubernetes does, but on one machine.
pods()
{
    local index pids=() status=0 variable
    while read -r variable; do
        export "${variable?}"
    done < <(python3 "$0" variables "$1")
    export MASTER_ADDR=127.0.0.1 MASTER_PORT
    MASTER_PORT=$(job_port)
    eval "local words=($(python3 "$0" command "$1"))"
    words[2]+=" --train-samples 400 --test-samples 40 --max-steps 3 --epochs 1"
    for ((index = 0; index < $(python3 "$0" ranks "$1"); index++)); do
        JOB_COMPLETION_INDEX=$index "${words[@]}" &
        pids+=($!)
    done
    for index in "${pids[@]}"; do
        wait "$index" || status=1
    done
    return $status
}
export -f pods
agree() { grep -q '^Parameter hash: .*(4 ranks agree)' "$job_output"; }
job self 4 "$BASH" -c 'pods "$@"' "$reader" "${yaml[0]}"
job_check "the indexed Job trains with 4 ranks" agree

if [ -n "$OPENMPI_RUN" ]; then
    eval "words=($(python3 "$reader" command "${yaml[1]}"))"
    job self 4 "$OPENMPI_RUN" "${words[@]:1}" --train-samples 400 --test-samples 40 --max-steps 3 \
        --epochs 1
    job_check "the MPIJob's command trains with 4 ranks" agree
fi
