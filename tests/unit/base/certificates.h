/* SPDX-License-Identifier: BSD-3-Clause */
/* Certificates for tests of TLS, made by the test itself in a folder of its own. */
#ifndef DIST_TESTS_CERTIFICATES_H
#define DIST_TESTS_CERTIFICATES_H

/*
 * ca and ca2 are authorities; good, expired and early (from tomorrow on) are of ca, other is of
 * ca2. All are for 127.0.0.1, good for localhost too.
 */
void certificates_make(void);
int certificates_clear(void); /* 0: nothing is left */

/* The file: ("good", ".pem"), ("good", ".key"). Four such texts hold at a time. */
const char *certificates_path(const char *name, const char *end);

#endif
