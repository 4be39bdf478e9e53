"""`python -m benchmarking` is the command `benchhouse`."""

import sys

from benchmarking.console_scripts import benchhouse

if __name__ == "__main__":
    sys.exit(benchhouse())
