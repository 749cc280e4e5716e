"""The code of the README on two ranks; types, where a checker is installed."""

import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

from support import PYTHON_ROOT, run_python, skip
from test_processes import losses, spawned


class Readme(unittest.TestCase):
    def test_code(self):
        blocks = re.findall(r"^```python\n(.*?)^```", (PYTHON_ROOT / "README.md").read_text(),
                            re.M | re.S)
        self.assertEqual(len(blocks), 2)
        with tempfile.TemporaryDirectory() as directory:
            for block in blocks:
                script = Path(directory, "script.py")
                script.write_text(block)
                found = losses(spawned(sys.executable, script).replace("loss  ", "loss "))
                self.assertGreaterEqual(len(found), 10)
                self.assertLess(float(found[-1]), 0.7 * float(found[0]))

    def test_bench(self):
        out = run_python(PYTHON_ROOT / "bench" / "bench.py").stdout
        self.assertRegex(out, r"\Aempty_call_ns [0-9.]+\nall_reduce_1k_us [0-9.]+\n\Z")


class Types(unittest.TestCase):
    def test_mypy(self):
        if run_python("-m", "mypy", "--version", check=False).returncode != 0:
            skip(self, "types of the Python binding", "mypy is missing", "mypy")
        with tempfile.TemporaryDirectory() as directory:
            shutil.copy(PYTHON_ROOT / "mypy.ini", directory)
            use = Path(directory, "use.py")
            use.write_text("import nxd\n"
                           "ctx = nxd.Context(timeout_ms=3)\n"
                           "rank: int = ctx.rank\n"
                           "nxd.AdamW(ctx, learning_rate='fast')\n")
            arguments = ["-m", "mypy", "--cache-dir", directory, "--config-file",
                         PYTHON_ROOT / "mypy.ini"]
            done = run_python(*arguments, PYTHON_ROOT / "nxd", check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            done = run_python(*arguments, use, check=False,
                              env={"MYPYPATH": str(PYTHON_ROOT)})
            self.assertIn('use.py:4: error: Argument "learning_rate"', done.stdout)
            self.assertIn("Found 1 error", done.stdout)


if __name__ == "__main__":
    unittest.main()
