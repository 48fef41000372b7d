# SPDX-License-Identifier: BSD-3-Clause
"""Runs PyTorch's own tests of torch.distributed, as far as they apply to any backend.

    python3 python/tests/torch_c10d.py [--ranks N] [--backend NAME] [--only PART] [--out FILE]

The tests are in PyTorch's package (torch.testing._internal.distributed.distributed_test) and are
selected by the backend's name. Therefore they are loaded with the name gloo, the tests of
all_to_all are enabled, which PyTorch runs only for MPI, and then all run with the selected backend.
The ranks are forked. With --backend gloo and the variable LIBDIST_REPLACE=gloo, libdist serves the
groups of gloo.
"""
import argparse
import os
import sys
import tempfile
import time
import unittest

_options = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
_options.add_argument("--ranks", type=int, default=4)
_options.add_argument("--backend", default="libdist", help="gloo, to compare")
_options.add_argument("--only", default="", help="tests with this in their names")
_options.add_argument("--out", help="a file for what each test came to")
OPTIONS = _options.parse_args()

_folder = tempfile.TemporaryDirectory(prefix="torch-c10d.")
os.environ.update(
    BACKEND="gloo",
    WORLD_SIZE=str(OPTIONS.ranks),
    INIT_METHOD=f"file://{_folder.name}/init",
    TEMP_DIR=_folder.name,
)
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60")

# pylint: disable=wrong-import-position  # the tests read the variables when they are imported
import torch.multiprocessing
import torch.testing._internal.distributed.distributed_test as suite

import libdist_torch

libdist_torch.load()
torch.set_num_threads(1)


class _Name(str):
    """The backend's name, which compares equal to "gloo" as well."""

    def __eq__(self, other):
        return other in (str(self), "gloo")

    __ne__ = lambda self, other: not self == other
    __hash__ = str.__hash__


suite.BACKEND = _Name(OPTIONS.backend)
os.environ["BACKEND"] = "mpi"  # MPI's tests of groups need only 4 ranks instead of 8
for feature in suite.DistTestCases.backend_feature.values():
    if "gloo" in feature:
        feature.add(OPTIONS.backend)


def _let_in(base):
    """Enables tests that are skipped for all backends except MPI, but do not need MPI."""
    for name in dir(base):
        test = getattr(base, name)
        why = getattr(test, "__unittest_skip_why__", "")
        if why.startswith("Only MPI supports"):
            test.__unittest_skip__ = False


# Tests that fail with groups of gloo that libdist serves: the logging data of DDP, which are written
# in C++, contain the name libdist. Any other failure is an error.
EXPECTED = {"test_ddp_logging_data_cpu"} if os.environ.get("LIBDIST_REPLACE") else set()


class Forked(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """The tests, each with its own ranks."""

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def reason_of(text):
    """Returns the line of a traceback that contains the reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    says = [line for line in lines if "Error" in line or "timed out" in line or "exit" in line]
    return (says or lines or ["?"])[-1][:200]


class Outcome(unittest.TestResult):
    """Prints a line per test, and counts outcomes."""

    def __init__(self):
        super().__init__()
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.unexpected = []
        self.out = open(OPTIONS.out, "w", encoding="utf-8") if OPTIONS.out else sys.stdout
        self.begin = 0.0

    def startTest(self, test):
        self.begin = time.monotonic()
        super().startTest(test)

    def _tell(self, test, outcome, why=""):
        self.counts[outcome] += 1
        seconds = time.monotonic() - self.begin
        name = test._testMethodName
        print(f"{outcome} {name} {seconds:.1f} s{why and ': ' + why}", file=self.out, flush=True)

    def addSuccess(self, test):
        self._tell(test, "passed")

    def addSkip(self, test, reason):
        self._tell(test, "skipped", reason)

    def addFailure(self, test, err):
        if test._testMethodName not in EXPECTED:
            self.unexpected.append(test._testMethodName)
        self._tell(test, "failed", reason_of(self._exc_info_to_string(err, test)))

    addError = addFailure


def main():
    _let_in(suite.DistributedTest._DistTestBase)
    names = unittest.TestLoader().getTestCaseNames(Forked)
    tests = unittest.TestSuite(Forked(name) for name in names if OPTIONS.only in name)
    outcome = Outcome()
    tests.run(outcome)
    print(f"{OPTIONS.backend}, {OPTIONS.ranks} ranks:", outcome.counts, flush=True)
    print("unexpected failures:", " ".join(outcome.unexpected) or "none", flush=True)
    return 1 if outcome.unexpected or not outcome.counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
