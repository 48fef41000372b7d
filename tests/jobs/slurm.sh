#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Jobs by srun of a real Slurm: without MASTER_ADDR and with each --mpi; they end with
# the parameters of a shell loop.
. "$srcdir/tests/support/slurm.sh"
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/survives.sh"
trap 'slurm_end; job_end' EXIT

[ -z "${CHECK_SHORT-}" ] || { job_skip "Slurm" "the other suite runs it"; exit; }
slurm_start || { job_skip "Slurm" "$slurm_why"; exit; }

training=("$builddir/train_mnist" --dummy --reproducible --train-samples 400 --test-samples 40 --max-steps 3
    --epochs 1 --batch-size 56)
hash_of() { sed -n 's/^Parameter hash: \([0-9a-f]*\) .*/\1/p' "$job_output"; }
same() { [ -n "$reference" ] && [ "$(hash_of)" = "$reference" ]; }

# reference RANKS: stores the result of a shell loop.
reference()
{
    job shell "$1" "${training[@]}"
    reference=$(hash_of)
}

# srun_job OPTION...: the training has the same result.
srun_job()
{
    job self - "$(type -P srun)" "$@" "${training[@]}"
    job_check "srun $*: the parameters of the shell loop" same
}

# by_pmix RANKS: true if they joined through Slurm's PMIx.
by_pmix() { [ "$(grep -c "meets the other ranks through the launcher's PMIx" "$job_output")" = "$1" ]; }
pmix=no
srun --mpi=list 2>&1 | grep -q pmix && pmix=yes

reference 4
srun_job -N2 -n4
srun_job -N2 -n4 --mpi=pmi2
if [ $pmix = yes ]; then
    DIST_DEBUG=info srun_job -N2 -n4 --mpi=pmix
    job_check "through Slurm's PMIx" by_pmix 4
else
    job_skip "srun --mpi=pmix" "this Slurm has no PMIx"
fi
if [ -n "${CHECK_LONG-}" ]; then
    srun_job -N1 -n4
    srun_job -N1 -n4 --mpi=pmi2
    srun_job -N2 -n4 -m cyclic
    printf 'n3\nn1\nn3\nn2\n' >"$job_folder/hostfile" # rank 0 is on the last host
    SLURM_HOSTFILE=$job_folder/hostfile srun_job -n4 -m arbitrary
    [ $pmix = yes ] && srun_job -N1 -n4 --mpi=pmix && srun_job -N2 -n4 -m cyclic --mpi=pmix
fi

# A death: srun lets the other ranks continue. With one distrun per node rank 0 may die.
srun=$(type -P srun) shrink=$builddir/tests/jobs/shrink
survives "srun, rank 3" 137 3 "goes on with 3" self 4 "$srun" -N2 -n4 --kill-on-bad-exit=0 "$shrink" gloo deaths 3
survives "distrun under srun, ranks 0 and 2" 137 2 "goes on with 2" self 4 "$srun" -N2 -n2 "$builddir/distrun" \
    --on-failure continue --nnodes 2 --rdzv-endpoint n1 --rdzv-id shrink -n 2 "$shrink" gloo deaths 0,2

# "2(x3),1" and "3,1"
reference 7
srun_job -N4 -n7
if [ -n "${CHECK_LONG-}" ] && [ $pmix = yes ]; then
    DIST_DEBUG=info srun_job -N4 -n7 --mpi=pmix
    job_check "seven ranks through Slurm's PMIx" by_pmix 7
fi

# Two steps at once in one allocation, each smaller than the allocation.
cat >"$job_folder/batch" <<END
srun -N2 -n3 --overlap \$SRUN_MPI ${training[*]} >"$job_folder/step.1" 2>&1 &
one=\$!
srun -N2 -n3 --overlap \$SRUN_MPI ${training[*]} >"$job_folder/step.2" 2>&1 &
wait \$! && wait \$one
END
step_is_same() { job_output=$job_folder/step.$1 same; }
reference 3
two_steps()
{
    SRUN_MPI=$1 job self - "$(type -P salloc)" -N2 -n4 "$BASH" "$job_folder/batch"
    job_check "the first of two steps at once" step_is_same 1
    job_check "the second of two steps at once" step_is_same 2
}
two_steps --mpi=none
[ -n "${CHECK_LONG-}" ] && [ $pmix = yes ] && two_steps --mpi=pmix

# The example, as a user submits it.
if [ -n "${CHECK_LONG-}" ]; then
    reference 4
    export TRAIN_MNIST=${training[0]}
    job self - "$(type -P sbatch)" --wait -o "$job_folder/sbatch.out" \
        "$srcdir/examples/cluster/train.sbatch" "${training[@]:1}"
    sbatch_is_same() { job_output=$job_folder/sbatch.out same; }
    job_check "examples/cluster/train.sbatch" sbatch_is_same
    reference 3
fi

# mpirun in a step; its processes inherit the step's variables.
export OMPI_MCA_plm=rsh OMPI_MCA_ras=^slurm PRTE_MCA_plm=ssh PRTE_MCA_ras=^slurm
for mpirun in "$OPENMPI_RUN" "${MPICH_RUN:+$MPICH_RUN -launcher fork -rmk user}"; do
    [ -n "$mpirun" ] || continue
    # shellcheck disable=SC2086
    job self - "$(type -P srun)" -N1 -n1 $mpirun -np 3 "${training[@]}"
    job_check "${mpirun##*/} in a step: the parameters of the shell loop" same
done
