# SPDX-License-Identifier: BSD-3-Clause
# libdist as torch.distributed's backend: its operations beside gloo's, and DDP's losses.
JOB_LIMIT=300 # a rank that imports torch on a busy machine
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/torch.sh"
tests=$srcdir/python/tests

job shell 2 "$program" "$tests/torch_collectives.py" libdist
[ -n "${CHECK_SHORT-}" ] || {
    job shell 4 "$program" "$tests/torch_collectives.py" libdist
    job shell 2 "$program" "$tests/torch_collectives.py" gloo
}

job shell 2 "$program" "$tests/torch_ddp.py"
[ -n "${CHECK_SHORT-}" ] || job shell 4 "$program" "$tests/torch_fsdp.py" libdist

# PyTorch's own tests, which take minutes. They need PyPI's expecttest.
own_tests()
{
    timeout -k 10 1200 "$program" "$tests/torch_c10d.py" --ranks 4 --out "$job_folder/c10d" \
        >"$job_output" 2>&1
}
if [ -n "${CHECK_LONG-}" ]; then
    if "$program" -c 'import expecttest' 2>"$job_output"; then
        job_check "PyTorch's own tests" own_tests
    else
        job_skip "PyTorch's own tests" "$program has no expecttest (pip install expecttest)"
    fi
fi
