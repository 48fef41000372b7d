# SPDX-License-Identifier: BSD-3-Clause
# libdist as a backend of torch.distributed: its operations compared with gloo's, and DDP's losses.
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
[ -n "${CHECK_SHORT-}" ] || {
    job shell 4 "$program" "$tests/torch_fsdp.py" libdist
    job shell 2 "$program" "$tests/torch_compile.py"
}

# Groups of gloo, with the package's entry point, which runs at the end of `import torch`.
entry=$job_folder/entry/libdist-0.dist-info
mkdir -p "$entry"
printf 'Metadata-Version: 2.1\nName: libdist\nVersion: 0\n' >"$entry/METADATA"
sed -n '/^\[project.entry-points/,/^$/p' "$srcdir/python/pyproject.toml" |
    sed 's/.*"torch.backends".*/[torch.backends]/; s/"//g' >"$entry/entry_points.txt"
export LIBDIST_REPLACE=gloo PYTHONPATH=$PYTHONPATH:$job_folder/entry
job shell 2 "$program" "$tests/torch_replace.py"
[ -n "${CHECK_SHORT-}" ] || {
    job shell 4 "$program" "$tests/torch_replace.py"
    job shell 2 "$program" "$tests/torch_replace.py" some
    job shell 2 "$program" "$tests/torch_replace.py" missing
}
unset LIBDIST_REPLACE

# CUDA tensors over NCCL and through the host, on the stand-in for GPUs.
if [ -e "$builddir/.libs/dist_nccl.so" ]; then
    export DIST_GPU_DRIVER=$builddir/.libs/standin_cuda.so DIST_NCCL_LIBRARY=$builddir/.libs/standin_cuda.so
    job_environment=$(env | grep '^DIST_' | sort)
    job shell 2 "$program" "$tests/torch_standin.py"
    [ -n "${CHECK_SHORT-}" ] || job shell 2 "$program" "$tests/torch_standin.py" shared
    unset DIST_GPU_DRIVER DIST_NCCL_LIBRARY
else
    job_skip "tensors of CUDA" "there is no module nccl"
fi

# A shorter monitor interval would let torchrun kill the other ranks before they can report.
killed()
{
    DIST_FLIGHT_FILE=/dev/null timeout -k 10 "$JOB_LIMIT" "$program" -m torch.distributed.run --nproc-per-node 3 --max-restarts 1 \
        --monitor-interval 5 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 --local-addr 127.0.0.1 \
        --log-dir "$job_folder/logs" \
        "$tests/torch_killed.py" "$job_folder/killed" >"$job_output" 2>&1 &&
        grep -q 'PeerLostError.*rank 1 (.*) was killed by signal 9' "$job_output" &&
        grep -q 'rank 0 ends, restarts 1' "$job_output"
}
[ -z "${CHECK_LONG-}" ] || job_check "torchrun restarts after a killed rank, which the other ranks name" killed

# PyTorch's own tests take minutes, and leave files in TMPDIR. They need PyPI's expecttest.
own_tests()
{
    mkdir -p "$job_folder/torch" || return
    TMPDIR=$job_folder/torch timeout -k 10 1200 "$program" "$tests/torch_c10d.py" --ranks 4 \
        --out "$job_folder/c10d" "$@" >"$job_output" 2>&1
}
if [ -n "${CHECK_LONG-}" ]; then
    if "$program" -c 'import expecttest' 2>"$job_output"; then
        job_check "PyTorch's own tests" own_tests
        export LIBDIST_REPLACE=gloo
        job_check "PyTorch's own tests with gloo replaced" own_tests --backend gloo
    else
        job_skip "PyTorch's own tests" "$program has no expecttest (pip install expecttest)"
    fi
fi
