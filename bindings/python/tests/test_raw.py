"""The raw layer against what the C compiler and the header say."""

import ctypes
import gc
import json
import os
import re
import tempfile
import threading
import unittest
from pathlib import Path

import nxd
from nxd import _handle, _raw, enums, errors, raw
from support import PYTHON_ROOT, run_code, skip_here

BINDINGS = PYTHON_ROOT.parent


def read(name):
    path = BINDINGS / name
    if not path.exists():
        skip_here(f"the raw layer against {name}", "it is not beside the binding",
                  "run the tests of the source tree")
    return json.loads(path.read_text())


def handles(base=_handle.Handle):
    for child in base.__subclasses__():
        yield child
        yield from handles(child)


class Raw(unittest.TestCase):
    def test_layout(self):
        layout = read("layout.json")["structs"]
        self.assertGreater(len(layout), 40)
        for name, struct in layout.items():
            with self.subTest(name):
                self.assertEqual(raw.ffi.sizeof(name), struct["size"])
                self.assertEqual(raw.ffi.alignof(name), struct["align"])
                fields = dict(raw.ffi.typeof(name).fields)
                self.assertEqual(list(fields), list(struct["fields"]))
                for field, (offset, size) in struct["fields"].items():
                    self.assertEqual(fields[field].offset, offset)
                    self.assertEqual(raw.ffi.sizeof(fields[field].type), size)

    def test_options_that_count_by_a_flag(self):
        """Given by keyword they count: has_seed goes on with seed, unless it is given as well."""
        found = {}
        for name in read("layout.json")["structs"]:
            fields = dict(raw.ffi.typeof(name).fields)
            for flag in fields:
                option = {"has_position": "step"}.get(flag, flag.removeprefix("has_"))
                if not flag.startswith("has_") or not name.endswith("options_t"):
                    continue
                found[name, option] = flag
                for given, on in (({option: 0}, 1), ({}, 0), ({flag: 0, option: 0}, 0)):
                    struct = _handle.Struct(name, given, raw.engine)
                    self.assertEqual(getattr(struct.pointer, flag), on, (name, option))
        self.assertGreater(len(found), 10)
        self.assertIn(("nxd_pp_options_t", "labels_input"), found)

    def test_constants(self):
        constants, api = read("layout.json")["constants"], read("api.json")
        self.assertEqual(_raw.ABI_VERSION, constants["NXD_ABI_VERSION"])
        classes = [getattr(enums, name) for name in enums.__all__]
        self.assertEqual(len(classes), len(api["enums"]))
        ours = sorted((c.__name__, m.value) for c in classes for m in c.__members__.values())
        self.assertEqual(sorted(v for _, v in ours),
                         sorted(constants[v["name"]] for e in api["enums"] for v in e["values"]))
        self.assertEqual(enums.Status.PEER_LOST, constants["NXD_ERROR_PEER_LOST"])
        self.assertEqual(enums.PpScheduleKind._1F1B, constants["NXD_PP_SCHEDULE_1F1B"])

    def test_every_function_is_there(self):
        functions = read("api.json")["functions"]
        self.assertGreater(len(functions), 250)
        for function in functions:
            library = raw.core if function["library"] == "nxd_core" else raw.engine
            self.assertTrue(callable(getattr(library, function["name"])), function["name"])

    def test_every_function_has_a_wrapper_or_is_said_to_be_raw(self):
        package = Path(raw.__file__).parent
        written = set(package.glob("*.py")) - {package / "_declarations.py"}
        source = "".join(path.read_text() for path in written)
        readme = (PYTHON_ROOT / "README.md").read_text()
        said = set(re.findall(r"`(\w+)`", readme[readme.index("Only there:"):].split("\n")[0]))
        without = set()
        for name, topic in ((f["name"], f["topic"]) for f in read("api.json")["functions"]):
            # Functions of one kind are called by a name put together: nxd_ + name + _async, and
            # nxd_optimizer_create_ + name + _ddp.
            stem = re.sub(r"_(async|ddp|init)$", "", name).removeprefix("nxd_")
            stem = stem.removeprefix("optimizer_create_")
            if name not in source and f'"{stem}"' not in source and (
                    name != f"nxd_{stem}_init" or f'"nxd_{stem}_t"' not in source):
                without.add(topic if topic in said else name)
        self.assertEqual(without, said)

    def test_finalizers_are_local(self):
        tags = {f["name"]: f["tag"] for f in read("api.json")["functions"]}
        destroys = {c._destroy for c in handles() if c._destroy}
        self.assertEqual(destroys, {
            n for n in tags if n.endswith("_destroy") and
            # The first is raw alone; the second is called where it was made.
            n not in ("nxd_python_capsule_destroy", "nxd_payloads_destroy")})
        for name in [*destroys, "nxd_context_abort"]:  # the latter is called at exit
            self.assertEqual(tags[name]["kind"], "local", name)

    def test_abi_is_compared_first(self):
        done = run_code("from nxd import _raw\n", check=False)
        self.assertEqual(done.returncode, 0)
        done = run_code("import importlib.util, sys\n"
                        "spec = importlib.util.find_spec('nxd')\n"
                        "import types; package = types.ModuleType('nxd')\n"
                        "package.__path__ = spec.submodule_search_locations\n"
                        "sys.modules['nxd'] = package\n"
                        "from nxd import _raw; _raw.ABI_VERSION = 77\n"
                        "import nxd.core\n", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ImportError: nxd: this binding is for ABI 77 of libnxd, and the library",
                      done.stderr)

    def test_core_loads_no_libtorch(self):
        run_code("import nxd, nxd.core\nnxd.Context().finalize()\n"
                 "assert 'torch' not in open('/proc/self/maps').read()\n"
                 "nxd.tensor([1.0])\n"
                 "assert 'libtorch_cpu' in open('/proc/self/maps').read()\n")

    def test_capsule_destructor_is_native(self):
        address = int(raw.ffi.cast("intptr_t", raw.core.nxd_python_capsule_destroy))
        core = ctypes.CDLL(nxd._libtorch.mapped_file(raw.CORE_NAME))
        own = ctypes.cast(core.nxd_python_capsule_destroy, ctypes.c_void_p).value
        self.assertEqual(address, own)

    def test_user_data_is_released(self):
        gc.collect()
        before = _handle.user_data.count()
        for _ in range(5):
            nxd.Function("test::f", lambda call, x: x).close()
        self.assertEqual(_handle.user_data.count(), before)


class Texts(unittest.TestCase):
    def test_a_nul_ends_no_text(self):
        """C would read what is before it: another key, another file."""
        store = nxd.Store.local()
        store.set("a", b"1")
        options = [lambda: nxd.Context(store, 0, 1, host_id="a\0b"),
                   lambda: store.set("a\0b", b"2"), lambda: store.get("a\0b"),
                   lambda: nxd.Store.file("/tmp/a\0b"), lambda: nxd.ops.Op("relu\0x"),
                   lambda: nxd.Serialization("/tmp/a\0b")]
        for call in options:
            with self.assertRaisesRegex(nxd.InvalidArgument, "NUL"):
                call()
        self.assertEqual(store.get("a"), b"1")

    def test_peers_hear_of_options_of_a_context(self):
        def join(rank):
            try:
                nxd.Context(store, rank, 2, **(bad if rank else {})).close()
            except Exception as error:
                failures[rank] = error

        for bad, failure in (({"host_id": "a\0b"}, nxd.InvalidArgument),
                             ({"transport": "pigeon"}, nxd.InvalidArgument),
                             ({"colour": 1}, TypeError)):
            store, failures = nxd.Store.local(), [None, None]
            threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertIsInstance(failures[0], nxd.PeerLost)
            self.assertIsInstance(failures[1], failure)

    def test_paths(self):
        """A file system's path need not be text."""
        with tempfile.TemporaryDirectory() as directory:
            for name in (b"bytes", b"no\xfftext"):
                path = os.path.join(os.fsencode(directory), name)
                nxd.Store.file(path)
                self.assertTrue(os.path.exists(path))
                nxd.Store.file(Path(os.fsdecode(path) + "2"))
                self.assertTrue(os.path.exists(path + b"2"))


class Later(unittest.TestCase):
    def test_an_error_of_a_later_library(self):
        group, operation = raw.ffi.new("char[]", b"world"), raw.ffi.new("char[]", b"")
        info = raw.ffi.new("nxd_error_info_t*", {
            "struct_size": raw.ffi.sizeof("nxd_error_info_t"), "status": -99, "parameters": 99,
            "group": group, "operation": operation})
        found = errors.info_from(info)
        self.assertEqual((found.status, found.parameters, found.group),
                         (-99, enums.ParameterState.INVALID, "world"))


if __name__ == "__main__":
    unittest.main()
