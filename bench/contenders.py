"""Programs that train the comparison Llama on this machine: bench_step, and the same step written
with torch and with JAX, for each interpreter that has one of these.

Each contender has a name and measure(layout, dtype), which runs it once and gives a result (times in
ms, loss, memory in MB) or the text of what failed.
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE_TYPES = [None, "SKYLAKEX", "COOPERLAKE", "HASWELL"]
LIBRARIES = [None, "/usr/lib/x86_64-linux-gnu/openblas-openmp",
             "/usr/lib/x86_64-linux-gnu/openblas-pthread"]
THRESHOLDS = ("glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184:"
              "glibc.malloc.top_pad=268435456")
TUNABLES = [None, THRESHOLDS, "glibc.malloc.hugetlb=1:" + THRESHOLDS]
PRODUCT = """
import time, torch, torch.nn.functional as F
torch.set_num_threads(1)
x, w, best = torch.randn(2048, 512), torch.randn(1536, 512), 1e9
for _ in range(8):
    start = time.thread_time(); F.linear(x, w); best = min(best, time.thread_time() - start)
print(2 * 2048 * 512 * 1536 / best)
"""
PROBES = {
    "torch": "import torch, torch.distributed as d\n"
             "print(torch.__version__, d.is_available() and d.is_gloo_available())",
    "jax": "import jax\nprint(jax.__version__, True)"}
SAMPLE_SECONDS = 1.5
LIMIT_SECONDS = 900


class Layout(typing.NamedTuple):
    name: str
    ranks: int
    threads: int  # of each rank
    options: list  # of bench_step
    mode: str  # of the other programs
    microbatches: int = 1  # at most

    def batch(self, given):
        """Sequences of a step of one copy, and the microbatches that they are. A pipeline has those
        of two copies, as data-parallel ranks do."""
        if self.mode != "pp":
            return given, 1
        count = min(self.microbatches, 2 * given)
        return 2 * given // count * count, count


LAYOUTS = {
    "one": Layout("one process, 2 threads", 1, 2, ["--tp", "1"], "tp"),
    "tp": Layout("TP 2", 2, 1, ["--tp", "2"], "tp"),
    "sp": Layout("TP 2 + sequence parallel", 2, 1, ["--tp", "2", "--sequence-parallel"], "tp_sp"),
    "dp": Layout("DP 2", 2, 1, ["--ddp"], "ddp"),
    "zero": Layout("DP 2 + ZeRO-1", 2, 1, ["--zero1"], "zero"),
    "pp": Layout("PP 2", 2, 1, ["--pp", "2"], "pp", 8)}


# Memory of running processes ------------------------------------------------------------------


def descendants(pid):
    """The process and all below it."""
    found, left = [], [pid]
    while left:
        current = left.pop()
        found.append(current)
        try:
            for task in os.listdir(f"/proc/{current}/task"):
                with open(f"/proc/{current}/task/{task}/children", encoding="ascii") as file:
                    left += [int(word) for word in file.read().split()]
        except OSError:
            continue
    return found


def kilobytes(path, key):
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(key):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0


class MemoryWatch(threading.Thread):
    """Samples a program's ranks; the largest process is the one that counts."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.done = pid, threading.Event()
        self.pss = self.rss = 0

    def run(self):
        while not self.done.wait(SAMPLE_SECONDS):
            for pid in descendants(self.pid):
                self.pss = max(self.pss, kilobytes(f"/proc/{pid}/smaps_rollup", "Pss:"))
                self.rss = max(self.rss, kilobytes(f"/proc/{pid}/status", "VmHWM:"))


def reason(errors):
    """The line that says most about why a program failed."""
    lines = [line for line in errors.splitlines() if line.strip()] or ["failed without a word"]
    return next((line for line in lines if re.match(r"\w*(Error|Exception)\b", line)), lines[-1])


def run(command, variables, ranks, paths, threads):
    """Output, error text or None, PSS and RSS in MB."""
    if ranks > 1:
        command = [paths["run"], "-n", str(ranks), *command]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", **variables,
                   "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        watch = MemoryWatch(process.pid)
        watch.start()
        try:
            out, errors = process.communicate(timeout=LIMIT_SECONDS)
            failure = None if process.returncode == 0 else reason(errors)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, errors = process.communicate()
            failure = f"ran for more than {LIMIT_SECONDS} seconds"
        watch.done.set()
        watch.join()
    return out, failure, watch.pss / 1024, watch.rss / 1024


# Contenders -----------------------------------------------------------------------------------


class Libnxd:
    name = "libnxd"

    def __init__(self, arguments, paths):
        self.arguments, self.paths = arguments, paths
        with open(arguments.config, encoding="utf-8") as file:
            self.vocabulary = json.load(file)["vocab_size"]

    def measure(self, layout, dtype):
        a = self.arguments
        batch, microbatches = layout.batch(a.batch)
        command = [self.paths["step"], "--config", a.config, "--vocab", str(self.vocabulary),
                   "--dtype", dtype, "--batch", str(batch // microbatches), "--microbatches",
                   str(microbatches), "--sequence", str(a.sequence),
                   "--steps", str(a.steps), *(["--small-peak"] if a.short else []), *layout.options]
        out, failure, pss, rss = run(command, {}, layout.ranks, self.paths, layout.threads)
        if failure is not None:
            return failure

        def number(pattern):
            found = re.search(pattern, out, re.MULTILINE)
            if not found:
                sys.exit(f"nothing like '{pattern}' in what bench_step printed:\n{out}")
            return float(found.group(1))

        value = r"\s+([0-9.]+)"
        return {"median": number("^step, ms" + value), "least": number(r"^step, ms.*least ([0-9.]+)"),
                "cpu": number("^CPU time of a rank, ms" + value),
                "loss": number("^loss after the last step" + value),
                "faults": number("^page faults a step" + value), "pss": pss, "rss": rss,
                "peak": number("^GEMM peak of all ranks, GFLOP/s" + value),
                "gflop": number(r"([0-9]+) GFLOP a step")}


class PythonStep:
    """A step written in Python, bench/step_LIBRARY.py, for one interpreter."""

    def __init__(self, library, python, version, arguments, paths, work):
        self.name = f"{library} {version}"
        self.python, self.arguments, self.paths, self.work = python, arguments, paths, work
        self.program = str(ROOT / "bench" / f"step_{library}.py")
        self.weights = str(work / "model.safetensors")
        self.variables, self.notes, self.meetings = {}, [], 0

    def command(self, layout, dtype, steps):
        self.meetings += 1
        a = self.arguments
        batch, microbatches = layout.batch(a.batch)
        meeting = self.work / f"meeting_{id(self)}_{self.meetings}"
        return [self.python, self.program, "--config", a.config, "--weights", self.weights,
                "--dtype", dtype, "--batch", str(batch), "--microbatches", str(microbatches),
                "--sequence", str(a.sequence), "--steps", str(steps), "--init", str(meeting),
                "--mode", layout.mode]

    def measure(self, layout, dtype):
        command = self.command(layout, dtype, self.arguments.steps)
        out, failure, pss, rss = run(command, self.variables, layout.ranks, self.paths,
                                     layout.threads)
        if failure is not None:
            return failure
        result = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
        return {"median": statistics.median(result["ms"]), "least": min(result["ms"]),
                "cpu": statistics.median(result["cpu_ms"]), "loss": result["losses"][-1],
                "faults": statistics.median(result["faults"]), "pss": pss, "rss": rss}


class Jax(PythonStep):
    def unfair(self, layout, dtype):
        """Why it has no row, or not of the same work; or None."""
        return "step_jax.py has no pipeline" if layout.mode == "pp" else None


class Torch(PythonStep):
    def unfair(self, layout, dtype):
        if layout.mode == "zero" and dtype == "bf16":
            return "its sharded optimizer keeps no f32 masters of bf16 parameters"
        return None

    def product_rate(self, variables):
        # OpenBLAS's own threads do not heed torch.set_num_threads.
        environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1",
                       "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run([self.python, "-c", PRODUCT], env=environment, text=True,
                              capture_output=True, timeout=300, check=False)
        return float(done.stdout) if done.returncode == 0 else 0.0

    def blas_settings(self):
        """Variables of the fastest BLAS, and their rate; with the rate of the environment as it is."""
        rates = {}
        for library in LIBRARIES:
            if library and not os.path.isdir(library):
                continue
            for core in CORE_TYPES if library else [None]:
                variables = {}
                if library:
                    older = os.environ.get("LD_LIBRARY_PATH")
                    variables["LD_LIBRARY_PATH"] = library + (f":{older}" if older else "")
                if core:
                    variables["OPENBLAS_CORETYPE"] = core
                rates[json.dumps(variables)] = self.product_rate(variables)
        # If two are as fast, the one that shares torch's OpenMP threads comes first.
        best = max(rates, key=lambda key: rates[key] * (1.05 if "openmp" in key else 1))
        return json.loads(best), rates[best], rates["{}"]

    def tune(self):
        """Finds the BLAS and the settings of malloc with which this torch is fastest."""
        self.variables, best, plain = self.blas_settings()
        self.notes.append(f"{self.name}'s products: {best * 1e-9:.0f} GFLOP/s of CPU time on one "
                          f"thread, {plain * 1e-9:.0f} out of the box")
        milliseconds = {}
        for tunables in TUNABLES:
            more = {"GLIBC_TUNABLES": tunables} if tunables else {}
            command = self.command(LAYOUTS["one"], "f32", 2)
            out, failure, *_ = run(command, {**self.variables, **more}, 1, self.paths, 2)
            if failure is None:
                milliseconds[tunables] = min(json.loads(out)["cpu_ms"])
        if not milliseconds:
            sys.exit(f"{self.name}: its step failed: {failure}")
        best = min(milliseconds, key=milliseconds.get)
        if best:
            self.variables["GLIBC_TUNABLES"] = best
        self.notes.append(f"one step of {self.name}: {milliseconds[best]:.0f} ms of CPU time with "
                          f"malloc as chosen, {milliseconds.get(None, 0):.0f} with its defaults")


def probe(python, library):
    """The version of a library that an interpreter has, and whether its ranks can talk; or None."""
    try:
        done = subprocess.run([python, "-c", PROBES[library]], capture_output=True, text=True,
                              timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split()
    return (words[0], words[1] == "True") if done.returncode == 0 and len(words) == 2 else None


def find_programs(build):
    paths = {name: str(pathlib.Path(build) / part) for name, part in
             (("step", "bench/bench_step"), ("weights", "bench/bench_step_weights"),
              ("run", "tools/nxdrun"))}
    for path in paths.values():
        if not os.access(path, os.X_OK):
            sys.exit(f"{path} is missing: build first")
    return paths


def find_peers(arguments, paths, work):
    """Peers that the interpreters of --python have, tuned unless --out-of-the-box. Writes the weights
    that all contenders start from first."""
    found = []
    for python in dict.fromkeys(arguments.python):
        for library, kind in (("torch", Torch), ("jax", Jax)):
            version = probe(python, library)
            if version and version[1]:
                found.append(kind(library, python, version[0], arguments, paths, work))
    subprocess.run([paths["weights"], arguments.config, str(work / "model.safetensors")], check=True)
    for peer in found:
        if isinstance(peer, Torch) and not arguments.out_of_the_box:
            peer.tune()
    return found
