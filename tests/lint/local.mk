# SPDX-License-Identifier: BSD-3-Clause
# The rules of the house, and proof that each of them can fail.
TESTS += tests/lint/lint.sh tests/lint/planted.sh
EXTRA_DIST += \
	tests/lint/code.awk \
	tests/lint/lint.sh \
	tests/lint/planted.sh \
	tests/lint/rules.sh \
	tests/lint/structure.py \
	tests/lint/symbols \
	tests/lint/words
