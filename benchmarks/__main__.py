"""Run one workload from the command line."""

import sys

# `python -m` puts the working directory first on the path. In a checkout that was not installed as editable
# the package has no compiled modules there, so an installed one goes first.
sys.path.append(sys.path.pop(0))

from benchmarks.runner import main

sys.exit(main(sys.argv[1:]))
