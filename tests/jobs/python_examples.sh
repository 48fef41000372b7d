# SPDX-License-Identifier: BSD-3-Clause
# PyTorch's example scripts print the same losses over gloo and over libdist.
JOB_LIMIT=300 # ranks that import torch on a busy machine
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/torch.sh"
folder=$srcdir/examples/pytorch

# The numbers after the word loss, which both must print, within 1e-5 of each other.
equal_losses()
{
    paste <(sed -n 's/.* loss \([0-9.e+-]*\).*/\1/p' "$job_folder/gloo") \
        <(sed -n 's/.* loss \([0-9.e+-]*\).*/\1/p' "$job_folder/libdist") |
        awk -v least="$1" '{
            n++; gap = $1 - $2; limit = 1e-5 * $1
            if (NF != 2 || gap > limit || -gap > limit) { print "line " n ": " $0; bad = 1 }
        } END { print n " losses"; exit bad || n < least }' >"$job_output" 2>&1
}
# both RANKS LEAST SCRIPT ARGS...: compares at least LEAST losses over both backends.
both()
{
    local ranks=$1 least=$2 script=$3 backend
    shift 3
    for backend in gloo libdist; do
        job shell "$ranks" "$program" "$folder/$script" --dist-backend $backend "$@"
        cp "$job_output" "$job_folder/$backend"
    done
    job_check "$script on $ranks ranks: equal losses" equal_losses "$least"
}

worlds=2
[ -n "${CHECK_LONG-}" ] && worlds="2 4"
for ranks in $worlds; do
    both "$ranks" 50 accumulate.py
    [ -n "${CHECK_LONG-}" ] || continue
    both "$ranks" 64 ddp_tutorial.py --epochs 2
    # Sums of four ranks are rounded in another order: at the default rate the losses diverge by
    # 1e-4.
    both "$ranks" 50 imagenet.py --pictures 1664 --lr 0.0005
done

spawned() { timeout -k 10 100 "$program" "$folder/$1" --dist-backend libdist "${@:2}" >"$job_output" 2>&1; }
job_check "spawn.py" spawned spawn.py --ranks 3
grep -q 'token 3, sum \[3.0, 3.0, 3.0, 3.0\]' "$job_output" || job_fail "spawn.py's result" "another"
job_check "imagenet.py starts its ranks" spawned imagenet.py --multiprocessing-distributed \
    --ranks-per-node 2 --epochs 1 --pictures 128 --dist-url "file://$job_folder/meet"
grep -q 'accuracy' "$job_output" || job_fail "imagenet.py's ranks" "no accuracy printed"
