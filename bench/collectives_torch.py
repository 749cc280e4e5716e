"""The collectives of torch.distributed over Gloo in the loop of collectives_loop.h.

Run by scripts/bench_collectives, with RANK and WORLD_SIZE set by the launcher and --init naming a
file through which the ranks meet.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist

MOST_CALLS, FEWEST_CALLS, WARM_UPS, LARGE_BYTES = 50000, 12, 5, 256 * 1024
SPREAD_SECONDS = 0.2


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--label", default="torch")
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--init", required=True)
    parser.add_argument("--pin", action="store_true")
    return parser.parse_args()


def values(n, rank):
    return (torch.arange(n) * 7 + rank * 13) % 31


def make_call(operation, send, recv, rank, size):
    """A function that makes one call."""
    part = recv.numel() // size
    whole = slice(part * size)  # without what is left over where it does not divide
    if operation == "all_reduce":
        return lambda: dist.all_reduce(recv)
    if operation == "reduce_scatter":
        parts, out = list(send[whole].chunk(size)), recv[:part]
        return lambda: dist.reduce_scatter(out, parts)
    if operation == "all_gather":
        parts, own = list(recv[whole].chunk(size)), send[:part]
        return lambda: dist.all_gather(parts, own)
    if operation == "broadcast":
        return lambda: dist.broadcast(recv, 0)
    if operation == "all_to_all":
        return lambda: dist.all_to_all_single(recv[whole], send[whole])
    if operation == "barrier":
        return dist.barrier

    def ping_pong():
        if rank == 0:
            dist.send(send, 1)
            dist.recv(recv, 1)
        elif rank == 1:
            dist.recv(recv, 0)
            dist.send(recv, 0)

    return ping_pong


def expected(operation, n, rank, size):
    part = n // size
    if operation == "all_reduce":
        return sum(values(n, r) for r in range(size))
    if operation == "reduce_scatter":
        return sum(values(n, r) for r in range(size))[rank * part:(rank + 1) * part]
    if operation == "all_gather":
        return torch.cat([values(part, r) for r in range(size)])
    if operation == "all_to_all":
        return torch.cat([values(n, r)[rank * part:(rank + 1) * part] for r in range(size)])
    return values(n, 0)


def largest(seconds):
    tensor = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()


def check(operation, call, send, recv, rank, size):
    if operation == "barrier":
        call()
        return
    own = values(recv.numel(), rank).to(recv.dtype)
    recv.fill_(-1)
    if operation == "all_reduce" or (operation == "broadcast" and rank == 0):
        recv.copy_(own)
    send.copy_(own)
    call()
    want = expected(operation, recv.numel(), rank, size).to(recv.dtype)
    wrong = 0.0 if torch.equal(recv[:want.numel()], want) else 1.0
    if largest([wrong])[0] != 0:
        raise RuntimeError("WRONG RESULT")


def time_calls(operation, call, source, large, count):
    seconds = []
    for _ in range(count):
        source.zero_()
        if large:
            dist.barrier()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        if large:
            dist.barrier()
    half = 2 if operation == "ping_pong" else 1
    return sorted(largest([s / half for s in seconds]))


def measure(operation, dtype, size_in_bytes, budget, rank, size):
    n = size_in_bytes // (2 if dtype == torch.bfloat16 else 4)
    send, recv = torch.zeros(n, dtype=dtype), torch.zeros(n, dtype=dtype)
    call = make_call(operation, send, recv, rank, size)
    check(operation, call, send, recv, rank, size)
    source = recv if operation in ("all_reduce", "broadcast") else send
    large = size_in_bytes >= LARGE_BYTES
    estimate = time_calls(operation, call, source, large, WARM_UPS)[WARM_UPS // 2]
    calls = int(max(FEWEST_CALLS, min(MOST_CALLS, budget / (estimate + 1e-7))))
    seconds = time_calls(operation, call, source, large, calls)
    check(operation, call, send, recv, rank, size)
    return seconds


def row(operation, dtype_name, size_in_bytes, arguments, rank, size):
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype_name]
    fields = [operation, dtype_name, size, size_in_bytes, arguments.label]
    try:
        seconds = measure(operation, dtype, size_in_bytes, arguments.seconds, rank, size)
    except RuntimeError as error:
        # Gloo's thread may count the call among those that the next barrier waits for, and fails with.
        time.sleep(0.1)
        return fields + ["n/a", "n/a", "n/a", 0, str(error).splitlines()[0]]
    calls = len(seconds)
    picked = (seconds[calls // 2], seconds[(calls - 1) * 99 // 100], seconds[0])
    return fields + [f"{s * 1e6:.3f}" for s in picked] + [calls, "ok"]


def spread_over_cores():
    end = time.perf_counter() + SPREAD_SECONDS
    while time.perf_counter() < end:
        pass


def main():
    arguments = parse_arguments()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if arguments.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{arguments.init}", rank=rank,
                            world_size=size)
    spread_over_cores()
    lines = [[f"# {arguments.label}: torch {torch.__version__}"]]
    for case in arguments.cases.split(","):
        operation, dtype, size_in_bytes = case.split(":")
        lines.append(row(operation, dtype, int(size_in_bytes), arguments, rank, size))
    if rank == 0:
        with open(arguments.out, "a", encoding="utf-8") as out:
            out.writelines("\t".join(map(str, line)) + "\n" for line in lines)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
