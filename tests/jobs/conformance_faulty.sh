#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Planted faults: the conformance tests must find each of them.
. "$srcdir/tests/support/job.sh"
job_needs_modules

battery="tests/conformance/conformance faulty --spawn 3 --brief"

job self 3 $battery

# A backend that lacks features is refused them, and passes everything else.
plain="tests/conformance/conformance plain --spawn 3 --brief --complete"
job self 3 $plain
job self 3 $plain --only recv
# fault NAME TEXT [MODE [OPTION]...]: the conformance tests report TEXT.
fault() { DIST_FAULTY=$1 job_fails "$2" self 3 $battery --mode "${3:-blocking}" "${@:4}"; }

fault last "FAULT all_reduce"
fault op " max, count"
fault premul " premul_sum, count"
fault root "FAULT broadcast"
fault reduce-root "FAULT reduce "
fault input "changed its input"
fault outside "wrote outside its result"
fault barrier "left a barrier"
fault block "FAULT all_to_all"
fault offsets "FAULT gather_v" blocking --only gather_v
fault offsets "FAULT all_gather_v" async
fault source "recv returned source rank"
fault tag "FAULT send " async
fault tag "FAULT send " group
fault says-yes "FAULT gather uint8"
fault says-no "was not refused"
fault lacks "should be supported, but is not" blocking --complete
