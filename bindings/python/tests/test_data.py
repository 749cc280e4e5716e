"""Loaders of token files."""

import os
import tempfile
import unittest

import numpy as np

import nxd.core as nxd
from support import on_ranks


class DataLoaders(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "tokens.bin")
        # Sixteen samples of four tokens.
        np.arange(64, dtype="<u2").tofile(self.path)

    def test_ranks_share_an_epoch(self):
        def take(context):
            with nxd.DataLoader(context, [self.path], 4, 4) as loader:
                self.assertEqual(loader.num_samples, 16)
                ids = np.empty((2, 4, 4), np.int64)
                loader.next(ids)
                self.assertEqual(loader.position, 16)
                return ids.reshape(8, 4).tolist()

        samples = sorted(sum(on_ranks(take), []))
        self.assertEqual(samples, np.arange(64).reshape(16, 4).tolist())

    def test_positions_and_labels(self):
        def run(context):
            loader = nxd.DataLoader(context, [self.path], 1, 4, format="uint16", next_labels=1,
                                    vocab_size=64, seed=3)
            first, again, labels = (np.empty((2, 4), np.int64) for _ in range(3))
            loader.next(first, labels)
            np.testing.assert_array_equal(labels, first + 1)
            loader.position = 0
            loader.next(again, labels)
            np.testing.assert_array_equal(first, again)
            for bad in (first.astype("i4"), first.astype("f8"), first[:, ::2],
                        np.empty(3, np.int64)):
                with self.assertRaises(nxd.InvalidArgument):
                    loader.next(bad, np.empty(bad.size, np.int64))
            for labels in (None, np.empty(4, np.int64)):
                with self.assertRaisesRegex(nxd.InvalidArgument, "labels"):
                    loader.next(first, labels)
            with self.assertRaisesRegex(nxd.InvalidArgument, "position"):
                loader.position = -1
            self.assertEqual(loader.position, 2)
            loader.close()

        on_ranks(run, 1)

    def test_bad_paths_of_one_rank_fail_all(self):
        cases = (("/nonexistent", nxd.InputOutput), ("with\0nul", nxd.InvalidArgument))

        def run(context):
            for bad, kind in cases:
                with self.assertRaises(kind):
                    nxd.DataLoader(context, [bad if context.rank == 1 else self.path], 1, 4)
            with self.assertRaises(nxd.InvalidArgument):
                nxd.DataLoader(context, self.path, 1, 4)

        on_ranks(run)


if __name__ == "__main__":
    unittest.main()
