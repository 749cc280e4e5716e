"""Draws programs over tensors by running them with torch, and writes them with what torch gave.
usage: draw.py PATH FIRST COUNT DEVICE     DEVICE: cpu, or xla, whose tensors share no memory with the host
"""
import pickle
import sys
import warnings

import torch

import calls
import edges
import operators
import state
import writes
from program import Program, Skip

KINDS = ([calls.views] * 14 + [calls.unary] * 4 + [calls.scalar] * 4 + [calls.binary] * 6 + [calls.ternary] * 2
         + [calls.reduce] * 6 + [calls.product] * 8 + [writes.indexing] * 6 + [writes.norms] * 3 + [writes.inplace] * 14
         + [state.cast] * 3 + [state.integers] + [state.custom] * 2 + [state.backward] * 6 + [state.grads] * 3
         + [state.requires, state.mode] + [state.drop] * 3 + [state.host_write] + [state.check] * 3 + [state.moved] * 3
         + [state.create] * 6 + [operators.any_unary] * 5 + [operators.any_binary] * 6 + [operators.any_scalar] * 5
         + [operators.any_reduce] * 5 + [operators.spatial] * 4 + [operators.places] * 6 + [operators.losses] * 3
         + [operators.any_write] * 8 + [operators.made, operators.attention]
         + [edges.zero_dims, edges.bad_dims, edges.empties, edges.outside, edges.strided, edges.masks] * 2
         + [edges.specials] * 4 + [edges.wholes] * 4 + [edges.duplicates] * 3 + [edges.results] * 3)
MOST_TENSORS = 40


def draw(seed, device):
    """Some instructions, and a check of all tensors at their end."""
    torch.set_grad_enabled(True)
    program = Program(seed, device)
    length, done = program.r.choice([8, 15, 30]), 0
    for _ in range(3):
        state.create(program)
    while done < length and len(program.vars) <= MOST_TENSORS:
        try:
            program.step(KINDS)
            done += 1
        except Skip:  # what was drawn fits no tensor
            done += 0.05
        except RuntimeError as error:
            if "modified inplace" not in str(error):  # of a view that torch gives up
                raise
        except StopIteration:  # a failed pass has left some gradients
            break
    torch.set_grad_enabled(True)
    program.check()
    return program.code


def main():
    path, first, count, device = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    # With AVX-512 oneDNN gives PyTorch 1.13 plain convolutions for transposed ones in bf16, and wrong gradients of GELU.
    torch.backends.mkldnn.set_flags(False)
    with open(path, "wb") as file:
        pickle.dump({seed: draw(seed, device) for seed in range(first, first + count)}, file)


main()
