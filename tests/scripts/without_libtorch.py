"""Runs a program of Python's, and fails if the process has a libtorch at the end.

usage: without_libtorch.py PROGRAM [ARGUMENT...]
"""

import os
import re
import runpy
import sys

sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
with open("/proc/self/maps", encoding="utf-8") as maps:
    found = {line.split()[-1] for line in maps if re.search(r"libtorch|libc10|/libnxd\.so", line)}
if found:
    sys.exit(f"{sys.argv[0]} has loaded {', '.join(sorted(found))}")
