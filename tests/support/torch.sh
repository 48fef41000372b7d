# SPDX-License-Identifier: BSD-3-Clause
# For job scripts with PyTorch, sourced after job.sh: $program is a Python with torch that imports
# this tree's package. If there is none, the script is skipped.
job_needs_modules

python=${DIST_TEST_TORCH_PYTHON-python3}
"$python" -c 'import torch' 2>/dev/null || {
    job_skip "PyTorch" "$python has no torch (DIST_TEST_TORCH_PYTHON names one that has)"
    exit
}
grep -q -- -fsanitize "$builddir/config.status" && {
    job_skip "PyTorch" "built with sanitizers, and the interpreter is not"
    exit
}
export PYTHONPATH=$srcdir/python LIBDIST=$builddir/.libs/libdist.so PYTHONDONTWRITEBYTECODE=1
export DIST_TIMEOUT=60 OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
export TORCHINDUCTOR_CACHE_DIR=$job_folder/inductor
program=$(command -v "$python")
