"""Ranks that are processes: examples against the library's own in C, Ctrl-C, a lost peer."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import nxd
from nxd import _libtorch, raw
from support import EXAMPLES, LONG, TIMEOUT_MS, TIMEOUT_S, run_code, run_python, skip_here

# A wait has begun once the library asks whether to give up, or once the function is called that waits
# in slices.
WHEN_CALLED = """
import sys
def when_called(name, act):
    "Acts in this thread's next call of a function of that name."
    def look(frame, event, _):
        if event == "call" and frame.f_code.co_name == name:
            sys.setprofile(None)
            act()
    sys.setprofile(look)
"""

INTERRUPT = WHEN_CALLED + """
import os, signal, threading, time
import numpy as np
import nxd
store = nxd.Store.local()
def other(): contexts.append(nxd.Context(store, 1, 2))
contexts = []
thread = threading.Thread(target=other)
thread.start()
context = nxd.Context(store, 0, 2)
thread.join()
def interrupt():
    waits.wait()
    time.sleep(0.1)  # most likely it is outside of Python then
    os.kill(os.getpid(), signal.SIGINT)
waits = threading.Event()
threading.Thread(target=interrupt, daemon=True).start()
begin = time.monotonic()
try:
    when_called("{asks}", waits.set)
    {call}
except KeyboardInterrupt:
    print("interrupted")
assert time.monotonic() - begin < {at_once_s}
{after}
"""


def examples_in_c():
    """Directory of the examples in C: of the installed tree, or of the build."""
    for place in (os.environ.get("NXD_C_EXAMPLES"),
                  os.environ.get("NXD_PREFIX", "") + "/examples"):
        if place and (Path(place) / "train_lm").exists():
            return Path(place)
    return skip_here("python beside the examples in C", "they are not built",
                     "name them by NXD_C_EXAMPLES")


def spawned(*argv, n=2):
    """Runs a program with n ranks; gives what they print, without nxdrun."""
    code = ("import nxd.core as nxd, sys\n"
            f"job = nxd.spawn(sys.argv[1:], {n})\n"
            "job.wait()\n")
    return run_python("-c", code, *argv).stdout


def losses(text):
    return re.findall(r"loss ([0-9.]+)", text)


class Spawned(unittest.TestCase):
    def test_a_program_of_standard_input_is_not_started_again(self):
        done = subprocess.run([sys.executable, "-"], input="import nxd; nxd.spawn(None, 2).wait()",
                              capture_output=True, text=True, timeout=TIMEOUT_S)
        self.assertIn("InvalidArgument: argv: expected a command, got None", done.stderr)


class Examples(unittest.TestCase):
    def test_mlp_tensor_parallel(self):
        ours = spawned(sys.executable, EXAMPLES / "mlp_tensor_parallel.py")
        self.assertEqual(ours, spawned(examples_in_c() / "mlp_tensor_parallel"))
        self.assertIn("Output sum is ", ours)

    def test_embed_zero1(self):
        ours = spawned(sys.executable, EXAMPLES / "embed_zero1.py")
        theirs = spawned(examples_in_c() / "embed_zero1")
        self.assertEqual(len(losses(ours)), 40)
        for a, b in zip(losses(ours), losses(theirs), strict=True):
            self.assertAlmostEqual(float(a), float(b), delta=2e-5)  # sums of other orders
        self.assertEqual(ours.splitlines()[-1], theirs.splitlines()[-1])

    def test_custom_model(self):
        found = losses(spawned(sys.executable, EXAMPLES / "custom_model.py"))
        self.assertEqual(len(found), 10)
        self.assertLess(float(found[-1]), 0.2 * float(found[0]))

    def test_more_ranks_than_rows(self):
        for name in "custom_model", "lazy_ddp":
            code = ("import nxd.core as nxd, sys\n"
                    "if len(sys.argv) == 1:\n"
                    "    nxd.spawn([sys.executable, '-c', sys.orig_argv[2], 'rank'], 2).wait()\n"
                    f"import {name}\n"
                    f"{name}.BATCH = 1\n"
                    f"{name}.main()\n")
            with self.subTest(name):
                done = run_code(code, check=False, cwd=EXAMPLES)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(f"{name}: expected at most 1 ranks, got 2", done.stderr)

    def test_pipeline_stages(self):
        script = EXAMPLES / "pipeline_stages.py"
        one = losses(run_python(script).stdout)
        self.assertEqual(len(one), 30)
        for options in ["--schedule zero-bubble", "--chunks 2"] + ["--schedule 1f1b",
                                                                   "--schedule gpipe"] * LONG:
            with self.subTest(options):
                got = losses(spawned(sys.executable, script, *options.split()))
                self.assertEqual(got, one)
        theirs = losses(spawned(examples_in_c() / "pipeline_callbacks"))
        self.assertAlmostEqual(float(one[-1]), float(theirs[-1]), places=6)

    def test_lost_peer(self):
        out = run_python(EXAMPLES / "lost_peer.py").stdout
        for line in ("InvalidArgument: all_reduce #", "ranks disagree", "PeerLost: barrier #",
                     "lost: rank 1, in barrier", "the job: ", "rank 1 of 2 was ended by signal 9"):
            self.assertIn(line, out)


class Interrupts(unittest.TestCase):
    def test_calls(self):
        """Ctrl-C is KeyboardInterrupt, whatever the main thread waits for."""
        over = ("try: context.world.barrier()\nexcept nxd.UserError: print('poisoned')\n"
                "context.close()")
        asked = "_interrupted"
        calls = {
            "context.world.all_reduce(np.ones(3))": (asked, over),
            "context.world.receive(np.ones(3), 1)": (asked, "context.close()"),
            "context.world.barrier(wait=False).wait()": (asked, "context.abort()"),
            "context.group([0, 1])": (asked, "context.close()"),
            f"store.get('absent', timeout_ms={TIMEOUT_MS})": ("get", ""),
            "nxd.Context(nxd.Store.local(), 0, 2)": (asked, ""),
            "context.finalize()": (asked, "context.close()"),
            f"nxd.spawn(['/bin/sleep', '{TIMEOUT_S}'], 1).wait()": ("wait", ""),
        }
        processes = {}
        for call, (asks, after) in calls.items():
            code = INTERRUPT.format(call=call, after=after, asks=asks, at_once_s=TIMEOUT_MS / 2000)
            processes[call] = subprocess.Popen([sys.executable, "-c", code], text=True,
                                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(processes[call].kill)
        for call, process in processes.items():
            with self.subTest(call):
                out, errors = process.communicate(timeout=TIMEOUT_S)
                said = ["interrupted"] + ["poisoned"] * (calls[call][1] == over)
                self.assertEqual((out.split(), errors, process.returncode), (said, "", 0))

    def test_what_is_being_closed(self):
        """Ctrl-C comes when close() has waited for a work, or a Ddp's, which is destroyed once."""
        work, other = ('context.world.receive(array, 1, wait=False)',
                       'context.world.send(np.ones(1000, "f4"), 0)')
        ddp, its_other = 'reducing(context, array)', 'reducing(context, np.ones(1000, "f4"), over'
        # Half a second later the wait has most likely asked for Ctrl-C itself.
        for ours, theirs in ((work, other), (work, "time.sleep(0.5); " + other),
                             (ddp, its_other + ")"), (ddp, its_other + ", 0.5)")):
            with self.subTest(theirs):
                self.close_interrupted(ours, theirs)

    def close_interrupted(self, ours, theirs):
        code = f"""{WHEN_CALLED}
import gc, os, signal, threading, time
import numpy as np
import nxd.core as nxd
store, closing, over = nxd.Store.local(), threading.Event(), threading.Event()
def interrupt():
    closing.wait()
    time.sleep(0.1)  # most likely the main thread is outside of Python then
    os.kill(os.getpid(), signal.SIGINT)
def reducing(context, grads, is_other=None, asked_s=0):
    ddp = nxd.Ddp.over_arrays(context, {{"w": np.zeros(1000, "f4")}}, {{"w": grads}})
    if is_other: interrupt()
    time.sleep(asked_s)
    ddp.mark_ready("w")
    if is_other: is_other.wait()
    return ddp
def other():
    with nxd.Context(store, 1, 2) as context:
        if "reducing" not in {theirs!r}: interrupt()
        {theirs}
        over.wait()
peer = threading.Thread(target=other)
peer.start()
with nxd.Context(store, 0, 2) as context:
    array = np.zeros(1000, "f4")
    ended = {ours}
    while not "'started'" in str(context.flight_record()): time.sleep(0.001)
    when_called("close", closing.set)
    try: ended.close()
    except KeyboardInterrupt: print("interrupted")
    gc.collect()
    over.set()
assert (array == 1).all() and ended.closed
peer.join()
"""
        done = run_code(code, check=False, env={"MALLOC_PERTURB_": "165"})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "interrupted\n", ""))

    def test_a_process_of_a_job(self):
        """One rank gets SIGINT in the middle of a collective, and the other PeerLost."""
        with tempfile.TemporaryDirectory() as directory:
            waits, left = Path(directory, "waits"), Path(directory, "left")
            code = f"""{WHEN_CALLED}
import pathlib, time
import nxd.core as nxd
context = nxd.Context()
context.world.barrier()
if context.rank == 0:
    when_called("_interrupted", pathlib.Path({str(waits)!r}).touch)
    try: context.world.barrier()
    except KeyboardInterrupt: print("interrupted", flush=True)
    pathlib.Path({str(left)!r}).touch()
else:
    while not pathlib.Path({str(left)!r}).exists(): time.sleep(0.02)
    try: context.world.barrier()
    except nxd.PeerLost as error: print("lost", error.info.root_rank, flush=True)
"""
            parent = f"""
import os, pathlib, signal, sys, time
import nxd.core as nxd
job = nxd.spawn([sys.executable, "-c", {code!r}], 2)
while not pathlib.Path({str(waits)!r}).exists(): time.sleep(0.02)
time.sleep(0.1)  # most likely it is outside of Python then
os.kill(job.pid(0), signal.SIGINT)
job.wait()
"""
            out = run_code(parent).stdout
            self.assertEqual(sorted(out.splitlines()), ["interrupted", "lost 0"])


class Jobs(unittest.TestCase):
    def test_jobs(self):
        job = nxd.spawn(["/bin/sh", "-c", "exit $RANK"], 2)
        with self.assertRaisesRegex(nxd.PeerLost, "rank 1 of 2 ended with exit code 1"):
            job.wait(TIMEOUT_S)
        self.assertEqual((job.size, job.exit_code(0), job.exit_code(1)), (2, 0, 1))
        with nxd.spawn(["/bin/sleep", str(TIMEOUT_S)], 2) as job:
            with self.assertRaises(nxd.Timeout):
                job.wait(0.05)
            self.assertIsNone(job.exit_code(0))
            pid = job.pid(1)
            job.kill(signal.SIGKILL)
            with self.assertRaises(nxd.PeerLost):
                job.wait(TIMEOUT_S)
            self.assertEqual(job.exit_code(1), 128 + signal.SIGKILL)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        with self.assertRaises(nxd.InputOutput):
            nxd.spawn(["/absent"], 1)

    def test_this_program_again(self):
        with tempfile.TemporaryDirectory() as directory:
            script = Path(directory, "again.py")
            # One write a rank, which no other comes between.
            script.write_text("import os, sys, nxd.core as nxd\n"
                              "line = f'{sys.argv[1:]}\\n'.encode()\n"
                              "if 'RANK' in os.environ: os.write(1, line)\n"
                              "else: nxd.spawn(num_processes=2).wait()\n")
            out = run_python(script, "a", "b").stdout
            self.assertEqual(out, "['a', 'b']\n" * 2)
            # Its path is that of a directory which the program leaves.
            script.write_text("import os\nos.chdir('/')\n" + script.read_text())
            out = run_python("-X", "utf8", "again.py", "c", cwd=directory).stdout
            self.assertEqual(out, "['c']\n" * 2)

    def test_after_fork(self):
        done = run_code("import os, nxd.core as nxd\n"
                 "context = nxd.Context()\n"
                 "pid = os.fork()\n"
                 "if pid == 0:\n"
                 "    try: context.world.barrier()\n"
                 "    except nxd.InvalidState: raise SystemExit(7)\n"
                 "    os._exit(1)\n"
                 "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
                 "context.world.barrier()\n")
        self.assertEqual(done.stderr, "")

    def test_missing_engine(self):
        """A tree with libnxd_core alone has nxd.core, and says so about the rest."""
        with tempfile.TemporaryDirectory() as directory:
            os.symlink(os.path.realpath(_libtorch.mapped_file(raw.CORE_NAME)),
                       os.path.join(directory, raw.CORE_NAME))
            done = run_code("import nxd\nnxd.Context().finalize()\n"
                            "try: nxd.tensor([1.0])\nexcept ImportError as e: print(e)\n",
                            env={"LD_LIBRARY_PATH": directory})
            self.assertIn("the functions of nxd/core.h only", done.stdout)


if __name__ == "__main__":
    unittest.main()
