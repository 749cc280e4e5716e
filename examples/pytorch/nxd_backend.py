"""The backend "nxd" of torch.distributed: `import nxd_backend` registers it, and
`torch.distributed.init_process_group("nxd")` uses it, so that DistributedDataParallel trains over
libnxd_core. Tensors are dense ones on the CPU.
"""

import collections
import queue
import threading

import torch
import torch.distributed as dist

import nxd.core as nxd

_OPS = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.PRODUCT: "prod", dist.ReduceOp.MIN: "min",
        dist.ReduceOp.MAX: "max"}
if hasattr(dist.ReduceOp, "AVG"):
    _OPS[dist.ReduceOp.AVG] = "avg"
_BaseWork = dist._Work if hasattr(dist, "_Work") else dist.Work


class _Work(_BaseWork):
    """Works of libnxd, of which `end` makes the result."""

    def __init__(self, works, tensors, end=None):
        super().__init__()
        self.works, self.tensors, self.end = works, tensors, end
        self.future = torch.futures.Future()
        self.ended, self.good, self.waiting = threading.Event(), False, threading.Lock()

    def complete(self):
        """Waits for the works, on the thread of the group or of the first who waits."""
        failure = None
        with self.waiting:
            if self.ended.is_set():
                return
            try:
                for work in self.works:
                    work.wait()
                if self.end:
                    self.end()
                self.good = True
            except Exception as error:  # goes to whoever waits
                failure = error
            self.ended.set()
        if failure is None:
            self.future.set_result(self.tensors)
        else:
            self.future.set_exception(failure)

    def wait(self, timeout=None):
        """torch says by a timeout of 0 that there is none."""
        if not timeout:
            self.complete()  # a message does not wait for those that the group's thread has before it
        elif not self.ended.wait(timeout.total_seconds()):
            raise RuntimeError(f"nxd: the call has not ended within {timeout}")
        self.future.wait()  # raises what the call ended with
        return True

    def is_completed(self):
        return self.ended.is_set()

    def is_success(self):
        return self.is_completed() and self.good

    def get_future(self):
        return self.future


class ProcessGroup(dist.ProcessGroup):
    """Calls are issued at once, and return; a thread of the group waits for them in their order, those
    aside that somebody waits for before."""

    def __init__(self, context, rank, size):
        super().__init__(rank, size)
        self.context, self.group, self._size = context, context.world, size
        self._issued = queue.SimpleQueue()
        # torch 1.13 asks a work for its future when Python may have let go of it.
        self._recent = collections.deque(maxlen=1024)
        threading.Thread(target=self._wait_for_all, daemon=True).start()

    def _wait_for_all(self):
        while True:
            self._issued.get().complete()

    def _issue(self, works, tensors, end=None):
        work = _Work(works, tensors, end)
        self._recent.append(work)
        self._issued.put(work)
        return work

    def getBackendName(self):
        return "nxd"

    def allreduce(self, tensors, opts=None):
        op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
        name = next((text for key, text in _OPS.items() if op == key), None)
        if name is None:
            raise ValueError(f"nxd: no reduction {op}")
        return self._issue([self.group.all_reduce(t, op=name, wait=False) for t in tensors], tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors, opts):
        return self._issue([self.group.broadcast(t, root=opts.rootRank, wait=False) for t in tensors],
                           tensors)

    def allgather(self, outputs, inputs, opts=None):
        gathered = [i.new_empty((self._size, *i.shape)) for i in inputs]
        works = [self.group.all_gather(i.contiguous(), out, wait=False)
                 for i, out in zip(inputs, gathered)]

        def spread():
            for row, whole in zip(outputs, gathered):
                for tensor, part in zip(row, whole):
                    tensor.copy_(part)
        return self._issue(works, outputs, spread)

    def _allgather_base(self, output, input, opts=None):
        return self._issue([self.group.all_gather(input, output, wait=False)], [output])

    def _reduce_scatter_base(self, output, input, opts=None):
        return self._issue([self.group.reduce_scatter(input, output, wait=False)], [output])

    def alltoall_base(self, output, input, output_sizes, input_sizes, opts=None):
        if output_sizes or input_sizes:
            raise ValueError("nxd: expected parts of one size")
        return self._issue([self.group.all_to_all(input, output, wait=False)], [output])

    def send(self, tensors, to, tag=0):
        return self._issue([self.group.send(t, to, tag, wait=False) for t in tensors], tensors)

    def recv(self, tensors, source, tag=0):
        return self._issue([self.group.receive(t, source, tag, wait=False) for t in tensors], tensors)

    def barrier(self, opts=None):
        return self._issue([self.group.barrier(wait=False)], [])


_contexts = []


def _create(store, rank, size, timeout):
    """The world's group: ranks meet as libnxd's launchers have them do. torch's store stays torch's."""
    if _contexts:
        raise RuntimeError("nxd: expected one process group, that of the world")
    context = nxd.Context(timeout_ms=int(timeout.total_seconds() * 1000))
    if (context.rank, context.size) != (rank, size):
        raise RuntimeError(f"nxd: this is rank {context.rank} of {context.size}, and torch was given "
                           f"{rank} of {size}")
    _contexts.append(context)
    return ProcessGroup(context, rank, size)


def finalize():
    """Waits for all ranks, and leaves together with them. [collective]"""
    while _contexts:
        context = _contexts.pop()
        context.finalize()
        context.close()


dist.Backend.register_backend("nxd", _create)
