"""Arguments that Python has many kinds of: iterators, texts, numbers of numpy's, views."""

import unittest

import numpy as np

import nxd
from support import on_ranks


class Lists(unittest.TestCase):
    def test_names_from_iterators(self):
        """They are as good as lists, though they give each name once."""
        def run(context):
            def norm(**names):
                params, grads = ({n: np.ones(4, "f4") for n in ("a", "b")} for _ in range(2))
                with nxd.Ddp.over_arrays(context, params, grads) as ddp:
                    ddp.set_shards({"a": None, "b": None}, **names)
                    return ddp.finish()

            def norm_of_placements(tied):
                params, grads = ({n: np.ones(4, "f4") for n in ("a", "b")} for _ in range(2))
                with nxd.Ddp.over_arrays(context, params, grads) as ddp:
                    ddp.set_placements({"a": "replicated", "b": "replicated"}, tied)
                    return ddp.finish()

            whole, each = norm(), norm_of_placements(["b"])
            self.assertLess(each, whole)
            self.assertEqual(norm_of_placements(n for n in ["b"]), each)
            for name in ("partial_grads", "tied"):
                each = norm(**{name: ["b"]})
                self.assertNotEqual(each, whole)
                self.assertEqual(norm(**{name: (n for n in ["b"])}), each)
                self.assertEqual(norm(**{name: filter(None, ["b"])}), each)

        on_ranks(run, layout={"tensor_parallel_size": 2})


if __name__ == "__main__":
    unittest.main()
