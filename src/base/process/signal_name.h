/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of signals. */
#ifndef DISTI_BASE_PROCESS_SIGNAL_NAME_H
#define DISTI_BASE_PROCESS_SIGNAL_NAME_H

/* "TERM" for SIGTERM; NULL for a number without a name, as real-time signals have. */
const char *disti_signal_name(int signal_number);

#endif
