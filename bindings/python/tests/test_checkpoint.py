"""Checkpoints, saved at once and in the background."""

import os
import tempfile
import unittest
from pathlib import Path

import numpy as np

import nxd
from support import on_ranks


def trained(context, placed=False):
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    ddp = nxd.Ddp.over_arrays(context, {"w": weight}, {"w": np.ones_like(weight)})
    if placed:
        ddp.set_placements({"w": nxd.Placement.REPLICATED})
    return nxd.AdamW(ddp, learning_rate=0.1)


class Checkpoints(unittest.TestCase):
    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory())

    def test_saved_and_gone_on_from(self):
        def body(context):
            self.assertIsNone(nxd.Checkpoint.open_newest(context, self.directory))
            adamw = trained(context)
            adamw.step()
            for step in (1, 2, 3):
                with nxd.Checkpoint.create(context, self.directory, step) as checkpoint:
                    adamw.snapshot(checkpoint, "state")
                    if context.rank == 0:
                        Path(checkpoint.path("own")).write_text("of rank 0", encoding="ascii")
                    checkpoint.set_value("position", f"batch {step}")
                    with self.assertRaises(nxd.InvalidState):
                        checkpoint.wait()
                    checkpoint.publish_async(keep_last=2)
                    adamw.step()
                    checkpoint.wait()
                    self.assertTrue(checkpoint.done)
            with nxd.Checkpoint.open_newest(context, self.directory) as newest:
                self.assertEqual(newest.step, 3)
                self.assertEqual(newest.value("position"), "batch 3")
                self.assertIsNone(newest.value("absent"))
                newest.restore_random_state()
                again = trained(context)
                again.load(newest.path("state"))
            with nxd.Checkpoint.open(context, self.directory, 2, verify=False) as older:
                return older.step, Path(older.path("own")).read_text(encoding="ascii")
        self.assertEqual(on_ranks(body), [(2, "of rank 0")] * 2)
        self.assertEqual(sorted(name for name in os.listdir(self.directory) if name[0] != "."),
                         ["step-000000000002", "step-000000000003"])

    def test_paths_keep_their_bytes(self):
        directory = os.path.join(self.directory, os.fsdecode(b"no\xfftext"))

        def body(context):
            with nxd.Checkpoint.create(context, directory, 1) as checkpoint:
                path = Path(checkpoint.path("own"))
                path.write_text("there", encoding="ascii")
                checkpoint.publish()
            with nxd.Checkpoint.open(context, directory, 1) as checkpoint:
                return Path(checkpoint.path("own")).read_text(encoding="ascii")
        self.assertEqual(on_ranks(body, 1), ["there"])

    def test_bad_texts_of_one_rank_fail_all(self):
        def body(context):
            adamw = trained(context)
            state = nxd.TrainingState(context)
            checkpoint = nxd.Checkpoint.create(context, self.directory, 1)
            calls = (lambda path: nxd.Checkpoint.create(context, path, 2),
                     lambda path: nxd.Checkpoint.open(context, path, 1),
                     lambda path: nxd.Checkpoint.open_newest(context, path),
                     lambda path: state.save(path, 2), lambda path: state.save_async(path, 2),
                     lambda path: state.load_newest(path), adamw.save,
                     lambda path: adamw.snapshot(checkpoint, os.path.basename(path or "state")))
            for call in calls:
                for bad in (os.path.join(self.directory, "with\0nul"), None):
                    if context.rank == 0:
                        with self.assertRaises(nxd.InvalidArgument) as raised:
                            call(os.path.join(self.directory, "good"))
                        self.assertIn("rank 1 rejected", str(raised.exception))
                    else:
                        with self.assertRaises((nxd.InvalidArgument, TypeError, ValueError)):
                            call(bad)
                    if call is calls[-1]:
                        break
            checkpoint.close()

        on_ranks(body)

    def test_whole_state(self):
        root = os.path.join(self.directory, "run")
        corpus = Path(self.directory, "text.txt")
        corpus.write_text("one two three four five six", encoding="ascii")

        def body(context):
            adamw = trained(context, placed=True)
            loader = nxd.DataLoader(context, [corpus], 1, 4)
            layer = nxd.ColumnParallelLinear(context, 4, 6)
            state = nxd.TrainingState(context)
            state.add_optimizer("optimizer", adamw)
            state.add_data_loader("data", loader)
            state.add_module("model", layer)
            self.assertIsNone(state.load_newest(root))
            for step in (1, 2):
                adamw.step()
                loader.next(np.zeros(4, np.int64))
                state.set_value("note", f"step {step}")
                if step == 1:
                    state.save(root, step)
                else:
                    state.save_async(root, step)
                    state.wait(60000)
            with nxd.Checkpoint.open(context, root, 1) as older:
                state.restore(older)
                found = [(state.value("note"), loader.position)]
            adamw.close()
            self.assertEqual(state.load_newest(root), 2)
            found.append((state.value("note"), loader.position))
            with nxd.Checkpoint.create(context, root, 3) as checkpoint:
                state.snapshot(checkpoint)
                with self.assertRaises(nxd.InvalidState):
                    state.restore(checkpoint)
                checkpoint.publish(keep_last=1)
            state.close()
            return found
        self.assertEqual(on_ranks(body, layout={"tensor_parallel_size": 2}),
                         [[("step 1", 1), ("step 2", 2)]] * 2)

    def test_modules(self):
        def body(context):
            layer = nxd.ColumnParallelLinear(context, 4, 6)
            path = os.path.join(self.directory, "same")
            layer.save_safetensors(path)
            with nxd.Checkpoint.create(context, self.directory, 1) as checkpoint:
                layer.snapshot(checkpoint, "model.safetensors")
                checkpoint.publish()
                # The ranks' shares, found by their index.
                shares = checkpoint.path("model.safetensors")
                self.assertTrue(shares.endswith(".shares.json"))
                layer.initialize(99)
                layer.load_safetensors(shares)
            again = os.path.join(self.directory, "again")
            layer.save_safetensors(again)
            return Path(again).read_bytes() == Path(path).read_bytes()
        self.assertEqual(on_ranks(body, layout={"tensor_parallel_size": 2}), [True, True])


if __name__ == "__main__":
    unittest.main()
