#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# ResNet-20 compared with PyTorch's: for equal parameters and images, equal outputs, gradients and
# running means.
. "$srcdir/tests/support/job.sh"

python=${DIST_TEST_TORCH_PYTHON-python3}
"$python" -c 'import torch' 2>/dev/null || {
    job_skip "the same as PyTorch" "$python has no torch (DIST_TEST_TORCH_PYTHON names one that has)"
    exit
}
same() {
    "$python" "$srcdir/tests/jobs/train_torch.py" "$builddir/tests/jobs/train_pass" "$job_folder" \
        >"$job_output" 2>&1
}
job_check "outputs, gradients, running means, and files in both directions" same
