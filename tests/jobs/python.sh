# SPDX-License-Identifier: BSD-3-Clause
# The Python package: its tests, and its collectives under each launcher.
. "$srcdir/tests/support/job.sh"

python=${DIST_TEST_PYTHON-python3}
has() { "$python" -c "import $1" 2>/dev/null; }

# The distribution's numpy does not fit a python3 that is earlier in PATH.
[ -n "${DIST_TEST_PYTHON-}" ] || has numpy || {
    [ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'import numpy' 2>/dev/null && python=/usr/bin/python3
}

has ctypes || { job_skip "the Python package" "no $python"; exit; }
header() { "$python" -B "$srcdir/python/tests/test_header.py" >"$job_output" 2>&1; }
job_check "the generated part agrees with dist.h" header
job_needs_modules

PYTHONPATH=$srcdir/python LIBDIST=$builddir/.libs/libdist.so PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH LIBDIST PYTHONDONTWRITEBYTECODE
program=$(command -v "$python")
# Sanitizers must be loaded into the interpreter first.
if grep -q -- -fsanitize "$builddir/config.status"; then
    job_skip "the Python package" "built with sanitizers, and the interpreter is not"
    exit
fi

has numpy || job_skip "arrays" "$python has no numpy: install python3-numpy"
export DIST_TIMEOUT=60
job self 1 "$program" "$srcdir/python/tests/collectives.py"
for ranks in 2 4; do
    job shell $ranks "$program" "$srcdir/python/tests/collectives.py"
done
job openmpi 2 "$program" "$srcdir/python/tests/collectives.py"
job mpich 2 "$program" "$srcdir/python/tests/collectives.py" mpi

has numpy && has pytest || {
    job_skip "the package's tests" "$python lacks numpy or pytest (DIST_TEST_PYTHON)"
    exit
}
package() { timeout -k 10 "$JOB_LIMIT" "$python" -m pytest -q -p no:cacheprovider "$srcdir/python/tests" >"$job_output" 2>&1; }
job_check "the package's tests" package
