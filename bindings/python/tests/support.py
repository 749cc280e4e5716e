"""Ranks as threads of this process, and programs of several processes."""

import gc
import os
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import nxd

HERE = Path(__file__).resolve().parent
PYTHON_ROOT = HERE.parent
EXAMPLES = PYTHON_ROOT / "examples"
# Ends what hangs, however slow and busy the machine: no test is about how long it is.
TIMEOUT_S = 300
# Bounds the collectives of tests and of their programs: a rank that is missing is an error before.
TIMEOUT_MS = 1000 * TIMEOUT_S // 2
os.environ["NXD_TIMEOUT_MS"] = str(TIMEOUT_MS)
# More repetitions and variants.
LONG = bool(os.environ.get("NXD_LONG"))

if os.environ.get("NXD_TEST_GC"):
    gc.set_threshold(1, 1, 1)


def on_ranks(function, n=2, layout=None, **options):
    """Calls function(context) on n threads that are the ranks of a world; gives what they return.
    The first failure of a rank is raised, once all have ended."""
    store = nxd.Store.local()
    results, failures = [None] * n, []

    def run(rank):
        try:
            with nxd.Context(store, rank, n, **options) as context:
                if layout is not None:
                    context.init_model_parallel(**layout)
                results[rank] = function(context)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        if thread.is_alive():
            raise AssertionError("a rank hangs")
    if failures:
        # A rank that fails makes its peers fail too; what they say is of no interest.
        raise min(failures, key=lambda error: isinstance(error, (nxd.PeerLost, nxd.Aborted)))
    return results


def skip(test, what, why, install):
    """Leaves a test out, and says so in a line that the summary of all tests lists."""
    skip_here(what, why, f"install {install}")


def skip_here(what, why, remedy):
    """The same of the test that is being run, with another remedy than a package."""
    print(f"\nskip: {what}: {why}; {remedy}", flush=True)
    raise unittest.SkipTest(why)


def run_python(*arguments, check=True, env=None, cwd=None):
    """Runs a program of Python in a process of its own; gives its result with stdout as text."""
    done = subprocess.run([sys.executable, *map(str, arguments)], text=True, timeout=TIMEOUT_S,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
                          env={**os.environ, **(env or {})})
    if check and done.returncode != 0:
        raise AssertionError(f"{arguments} ended with {done.returncode}:\n{done.stdout}"
                             f"{done.stderr}")
    return done


def run_code(code, **options):
    return run_python("-c", code, **options)


def resident_kb():
    """Memory of this process that is resident, without pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return skip_here("memory of a process", "no RssAnon in /proc/self/status", "run on Linux 4.5")
