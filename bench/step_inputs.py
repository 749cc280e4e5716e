"""Parts that the training steps written in Python share: the tokens of bench_step, a file of weights,
and the settings that all of them train with."""
import argparse
import json
import resource
import struct
import time

WARM_UPS = 3
LEARNING_RATE, MAX_NORM = 1e-3, 1.0
NO_LABEL = -100


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True, help="Hugging Face config.json of a Llama")
    parser.add_argument("--weights", required=True, help="its model.safetensors")
    parser.add_argument("--mode", choices=["tp", "tp_sp", "ddp", "zero", "pp"], default="tp")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--batch", type=int, default=4, help="sequences of a copy's step")
    parser.add_argument("--microbatches", type=int, default=1, help="of a pipeline")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--init", help="file through which ranks meet")
    return parser.parse_args()


def make_ids(vocabulary, batch, sequence):
    """The ids of bench_step: batch lists of sequence integers."""
    state, ids = 88172645463325252, []
    for _ in range(batch * sequence):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        ids.append((state >> 33) % vocabulary)
    return [ids[i * sequence:(i + 1) * sequence] for i in range(batch)]


def read_safetensors(path, view):
    """Tensors by name. view(data, dtype, offset, shape) makes one: data are the bytes of the file,
    dtype is "F32" or "BF16"."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    size, = struct.unpack_from("<Q", data)
    return {name: view(data, entry["dtype"], 8 + size + entry["data_offsets"][0], entry["shape"])
            for name, entry in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


def measure(step, steps):
    """Milliseconds, CPU milliseconds and page faults of each step, and the losses. step() makes one
    and returns its loss."""
    taken, cpu, faults, losses = [], [], [], []
    for index in range(WARM_UPS + steps):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start, start_cpu = time.perf_counter(), time.process_time()
        losses.append(step())
        if index >= WARM_UPS:
            taken.append((time.perf_counter() - start) * 1e3)
            cpu.append((time.process_time() - start_cpu) * 1e3)
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return {"ms": taken, "cpu_ms": cpu, "faults": faults, "losses": losses}
