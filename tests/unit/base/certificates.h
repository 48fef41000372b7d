/* SPDX-License-Identifier: BSD-3-Clause */
/* Certificates for tests of TLS, made by the test in its own directory. */
#ifndef DIST_TESTS_CERTIFICATES_H
#define DIST_TESTS_CERTIFICATES_H

/* ca and ca2 are certificate authorities. ca has signed good, expired and early (valid from
 * tomorrow on); ca2 has signed other. All are valid for 127.0.0.1; good also for localhost. */
void certificates_make(void);
int certificates_clear(void); /* removes the files; 0: all are removed */

/* Returns the path of a file, as for ("good", ".pem") or ("good", ".key"). Only the last four
 * results are valid. */
const char *certificates_path(const char *name, const char *end);

#endif
