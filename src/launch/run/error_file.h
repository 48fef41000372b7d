/* SPDX-License-Identifier: BSD-3-Clause */
/* The file that TORCHELASTIC_ERROR_FILE names: why a worker failed, in its own words. */
#ifndef DISTI_LAUNCH_RUN_ERROR_FILE_H
#define DISTI_LAUNCH_RUN_ERROR_FILE_H

/*
 * The traceback that the worker has left there, else its message, for the failure block: lines
 * behind the first are indented. NULL: it has left none that can be read. The caller frees it.
 */
char *disti_run_error_text(const char *path);

#endif
