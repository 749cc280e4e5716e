"""Facts of the machine and of the library, and what a context tells of itself."""

import unittest

import nxd.core as nxd
from support import on_ranks


class Machine(unittest.TestCase):
    def test_figures(self):
        self.assertIn("gloo", str(nxd.build_info()).lower())
        self.assertIn("NXD_TIMEOUT_MS", nxd.environment_table())
        self.assertGreater(nxd.measure_gemm_peak("f32", 128), 1e6)
        nxd.release_threads()
        nxd.set_memory_cap(1 << 40)
        self.assertEqual(nxd.memory_stats().cap_bytes, 1 << 40)
        nxd.set_memory_cap(0)
        nxd.trim_memory()
        with nxd.profile() as phases:
            on_ranks(lambda context: context.world.barrier())
        self.assertGreater(phases["communication"].calls, 0)
        self.assertEqual(nxd.device(), nxd.Device.CPU)

    def test_context_tells(self):
        def run(context):
            context.world.barrier()
            self.assertIn("barrier", str(context.flight_record()))
            context.plain_kernels = True
            self.assertTrue(context.plain_kernels)
            self.assertEqual(context.step, (0, 0))
            context.set_step(3, 1)
            self.assertEqual(context.step, (3, 1))

        on_ranks(run)


if __name__ == "__main__":
    unittest.main()
