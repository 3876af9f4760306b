# SPDX-License-Identifier: BSD-3-Clause
"""Inside a lab: runs rdma-core's own Python tests, which lie in the directory given, and prints one
line per test: ok, FAIL (and the traceback, indented) or skip. For the Python that Debian's pyverbs
is made for; run_pyverbs_tests.py calls it."""

import os
import runpy
import sys
import unittest


class OneLineEach(unittest.TestResult):
    """Lines go straight to descriptor 1: some of the tests fork."""

    def __init__(self, *_):
        super().__init__()
        self.pid = os.getpid()

    def say(self, text):
        if os.getpid() == self.pid:
            os.write(1, (text + "\n").encode())

    def fail(self, test, error):
        self.say(f"FAIL {test.id()}")
        for line in self._exc_info_to_string(error, test).splitlines():
            self.say(f"     | {line}")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say(f"ok   {test.id()}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(f"skip {test.id()}: {reason}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.fail(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self.fail(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.fail(subtest, err)


class Runner:
    def __init__(self, **_):
        pass

    @staticmethod
    def run(tests):
        result = OneLineEach()
        tests(result)
        return result


def main():
    directory = sys.argv[1]
    os.chdir(directory)
    sys.path[0:0] = [directory, os.path.join(directory, "tests")]
    sys.argv[:] = ["run_tests.py", *sys.argv[2:]]
    # run_tests.py leaves the choice of a runner to unittest.main().
    unittest.TextTestRunner = unittest.runner.TextTestRunner = Runner
    runpy.run_path(os.path.join(directory, "tests", "run_tests.py"), run_name="__main__")


if __name__ == "__main__":
    main()
