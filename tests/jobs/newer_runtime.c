/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulates a CUDA library that is newer than the simulated driver of tests/standin. */
__attribute__((visibility("default"))) int cudaRuntimeGetVersion(int *version);

int cudaRuntimeGetVersion(int *version)
{
    *version = 14000;
    return 0;
}
