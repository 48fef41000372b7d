#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# An OpenBLAS that takes the CPU for a twenty-year-old one is switched to kernels that suit the CPU.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "kernels" "a preloaded library and sanitizers do not mix"; exit; }
says() { grep -qF -- "$1" "$job_output"; }
run=(train_mnist --dummy --arch=mlp --train-samples=128 --test-samples=64 --epochs=1)

unset OPENBLAS_CORETYPE
job self 1 "${run[@]}"
job_check "train_mnist prints what computes matrix products" grep -q '^Matrix products: ' "$job_output"
says "OpenBLAS" || { job_skip "kernels" "train_mnist was built without OpenBLAS"; exit; }
grep -qw avx2 /proc/cpuinfo || { job_skip "kernels" "this CPU supports only the oldest kernels"; exit; }

# Takes every CPU for a Prescott, like an OpenBLAS that is older than the CPU.
cat >"$job_folder/old.c" <<'C'
#include <stdlib.h>
char *openblas_get_corename(void)
{
    char *name = getenv("OPENBLAS_CORETYPE");
    return name ? name : "Prescott";
}
C
gcc -shared -fPIC -o "$job_folder/old.so" "$job_folder/old.c" || exit 1
old=(/usr/bin/env "LD_PRELOAD=$job_folder/old.so" "$builddir/${run[@]}")

job self 1 "${old[@]}"
job_check "suitable kernels are chosen" grep -qE 'kernels for (Haswell|SkylakeX)$' "$job_output"
job shell 2 "${old[@]}"
job_check "both ranks agree" says "(2 ranks agree)"
job_check "suitable kernels are chosen on both ranks" grep -qE 'kernels for (Haswell|SkylakeX)$' "$job_output"
job self 1 "${old[@]}" --multiprocessing-distributed --world-size=2
job_check "suitable kernels are chosen on spawned ranks" grep -qE 'kernels for (Haswell|SkylakeX)$' "$job_output"
OPENBLAS_CORETYPE=Nehalem job self 1 "${old[@]}"
job_check "the user's setting is not changed" says "kernels for Nehalem"
