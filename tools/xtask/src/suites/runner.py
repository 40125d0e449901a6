"""Runs a module of unittest's and writes a line for each test that begins and that ends.

The arguments are the file and the module. A test that takes 20 s is interrupted.
"""
import signal
import sys
import unittest

LOG = open(sys.argv[1], "a", buffering=1)
SECONDS_MAX = 20


class Late(BaseException):
    """A test takes too long."""


def interrupt(*_):
    raise Late


class Outcomes(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        LOG.write(f"begins {test.id()}\n")
        signal.signal(signal.SIGALRM, interrupt)
        # The alarm repeats, since clean-up behind the test may hang, too.
        signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX, 5)

    def stopTest(self, test):
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().stopTest(test)

    def ended(self, test, outcome):
        LOG.write(f"{outcome} {test.id()}\n")

    def addSuccess(self, test):
        self.ended(test, "ok")

    def addFailure(self, test, error):
        self.ended(test, "failed")

    def addError(self, test, error):
        self.ended(test, "failed")

    def addSkip(self, test, reason):
        self.ended(test, "skipped")

    def addExpectedFailure(self, test, error):
        self.ended(test, "ok")

    def addUnexpectedSuccess(self, test):
        self.ended(test, "failed")


try:
    import test.support
    # The namespace has no other hosts. Tests that take gigabytes are left out.
    test.support.use_resources = ["network"]
except ImportError:
    pass

unittest.defaultTestLoader.loadTestsFromName(sys.argv[2]).run(Outcomes())
