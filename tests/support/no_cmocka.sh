#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs instead of the unit tests if cmocka is missing.
echo "SKIP: unit tests: cmocka is missing (Debian: apt-get install libcmocka-dev)"
exit 77
