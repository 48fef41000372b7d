/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for a CUDA library that is newer than the stand-in driver. */
__attribute__((visibility("default"))) int cudaRuntimeGetVersion(int *version);

int cudaRuntimeGetVersion(int *version)
{
    *version = 14000;
    return 0;
}
