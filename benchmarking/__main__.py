"""`python -m benchmarking` is the front door."""

import sys

from benchmarking.cli import main

sys.exit(main())
