"""A second libtorch in the process is refused before libnxd is loaded, or before it is loaded
itself; nxd.core works beside any."""

import os
import shutil
import tempfile
import unittest
from pathlib import Path

from nxd import _libtorch, raw
from support import run_code, skip, skip_here

TRAIN = """
import sys, threading
import numpy as np
import nxd.core as nxd
def rank(r):
    with nxd.Context(store, r, 2) as context:
        w, g = {"w": np.ones(64, "f4")}, {"w": np.ones(64, "f4")}
        ddp = nxd.Ddp.over_arrays(context, w, g, zero_stage=1)
        sgd = nxd.Sgd(ddp, learning_rate=0.25)
        sgd.step()
        assert w["w"].tolist() == [0.5] * 64, w
        done.append(r)
store, done = nxd.Store.local(), []
threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
for t in threads: t.start()
for t in threads: t.join()
assert len(done) == 2
"""
# Tries the engine, which must be an ImportError that says so, and before libnxd.so is mapped.
REFUSED = """
import nxd
try:
    nxd.tensor([1.0])
except nxd.ForeignLibtorch as error:
    print(error)
else:
    sys.exit("was not refused")
assert "libnxd.so" not in open("/proc/self/maps").read()
assert "libtorch_cpu.so.1" not in open("/proc/self/maps").read().replace(sys.argv[1], "")
"""


def system_library(stem):
    """The file of a part of libtorch that libnxd would load."""
    engine = Path(_libtorch.mapped_file(raw.CORE_NAME)).with_name(raw.ENGINE_NAME)
    if not engine.exists():
        skip_here("a libtorch of somebody else's", "no libnxd.so.0", "build the engine")
    name = next(n for n in _libtorch.needed(str(engine)) if n.startswith(stem))
    for directory in os.environ.get("LD_LIBRARY_PATH", "").split(":") + [
            "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"]:
        if directory and (Path(directory) / name).exists():
            return (Path(directory) / name).resolve()
    return skip_here("a libtorch of somebody else's", f"{name} is not where expected",
                     "name its directory in LD_LIBRARY_PATH")


class Foreign(unittest.TestCase):
    def setUp(self):
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.c10 = system_library("libc10")

    def wheel(self):
        """A torch package with libraries of its own, of another soname, as wheels have."""
        package = self.directory / "site" / "torch"
        (package / "lib").mkdir(parents=True)
        content = self.c10.read_bytes()
        self.assertIn(b"libc10.so.1.13", content)
        library = package / "lib" / "libc10.so"
        library.write_bytes(content.replace(b"libc10.so.1.13", b"libc10.so.9.99"))
        (package / "__init__.py").write_text(
            "import ctypes, os\n"
            "ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'lib', 'libc10.so'),"
            " ctypes.RTLD_GLOBAL)\n")
        return {"PYTHONPATH": f"{package.parent}:{os.environ.get('PYTHONPATH', '')}"}, library

    def run_with(self, first, *rest, env=None):
        return run_code(f"import sys; sys.argv.append({str(self.directory)!r})\n{first}\n"
                        + "\n".join(rest), env=env).stdout

    def test_imported_first(self):
        env, library = self.wheel()
        out = self.run_with("import torch", TRAIN, REFUSED, env=env)
        self.assertIn(f"has already loaded {library}", out)
        self.assertIn("nxd.core alone, which needs no libtorch", out)

    def test_mapped_first(self):
        """By what is mapped, whoever did it: a copy of the system's own under another path."""
        copy = self.directory / "libtorch_cpu.so"
        with open(system_library("libtorch_cpu"), "rb") as whole, open(copy, "wb") as part:
            part.write(whole.read(1 << 20))
        code = (f"import mmap; file = open({str(copy)!r}, 'rb')\n"
                "held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)")
        self.assertIn(f"has already loaded {copy}", self.run_with(code, TRAIN, REFUSED))

    def test_deleted_and_renamed_files_are_seen(self):
        copy = self.directory / "libc10-0a1b2c3d.so"
        shutil.copy(self.c10, copy)
        code = (f"import mmap, os; file = open({str(copy)!r}, 'rb')\n"
                "held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
                f"os.unlink({str(copy)!r})")
        self.assertIn(str(copy), self.run_with(code, "import sys", REFUSED))

    def test_imported_afterwards(self):
        env, library = self.wheel()
        out = self.run_with("import nxd; nxd.tensor([1.0])\n"
                            "try: import torch\n"
                            "except ImportError as error: print(error)\n"
                            "assert 'torch' not in sys.modules\n"
                            f"assert {str(library)!r} not in open('/proc/self/maps').read()\n"
                            "assert nxd.tensor([2.0]).item() == 2", env=env)
        self.assertIn(f"import torch would load {library} beside", out)

    def test_imported_after_the_core_alone(self):
        env, _ = self.wheel()
        self.run_with("import nxd.core", "import torch", TRAIN, REFUSED, env=env)

    def test_the_systems_own_is_shared(self):
        found = run_code("import importlib.util; print(bool(importlib.util.find_spec('torch')))")
        if found.stdout.strip() != "True":
            skip(self, "the system's own libtorch", "torch is missing", "python3-torch")
        for code in ("import torch, nxd", "import nxd; nxd.tensor([1.0]); import torch"):
            run_code(f"{code}\nassert torch.from_dlpack(nxd.tensor([1.0])).item() == 1\n"
                     "maps = {l.split()[-1] for l in open('/proc/self/maps') if 'libc10' in l}\n"
                     "assert len(maps) == 1, maps")


if __name__ == "__main__":
    unittest.main()
