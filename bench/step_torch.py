"""The training step of bench_step written with torch: the same Llama, tokens, optimizer and clipping.

Run by scripts/bench_peers, with RANK and WORLD_SIZE set by the launcher where there are several
ranks, and --init naming a file through which they meet. Written for torch 1.13, which has neither
tensor-parallel layers nor fused attention: both are here, in eager operators, as fast as they could
be made. So is 1F1B: the pipelines of torch 2.6 stop for ever over Gloo, since they wait for the last
of several works alone. Prints one line of JSON on rank 0.

The hidden states are [sequence, batch, hidden], with sequence parallelism slices along the sequence.
"""
import json
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F

from step_inputs import (LEARNING_RATE, MAX_NORM, NO_LABEL, make_ids, measure, parse_arguments,
                         read_safetensors)

ATTENTION_ROWS = 128
BUCKET_ELEMENTS = 25 << 18


def movable(x):
    """The same bytes in a dtype that Gloo moves."""
    return x.view(torch.float16) if x.dtype == torch.bfloat16 else x


class Ranks:
    """The tensor-parallel ranks: all of the world in modes tp, one otherwise."""

    def __init__(self, mode):
        world = dist.get_world_size() if dist.is_initialized() else 1
        parallel = mode in ("tp", "tp_sp")
        self.size = world if parallel else 1
        self.rank = dist.get_rank() if parallel and world > 1 else 0
        self.slices_sequence = mode == "tp_sp" and self.size > 1

    def sum_async(self, x):
        """Starts the sum of x over the ranks; calling the result gives it. Gloo sums no bf16."""
        wide = x if x.dtype == torch.float32 else x.float()
        work = dist.all_reduce(wide, async_op=True)

        def finish():
            work.wait()
            return wide if wide is x else wide.to(x.dtype)

        return finish

    def gather_sequence(self, x):
        whole = x.new_empty((x.shape[0] * self.size, *x.shape[1:]))
        dist.all_gather(list(movable(whole).chunk(self.size)), movable(x.contiguous()))
        return whole

    def reduce_scatter_async(self, x):
        """Gloo has no reduce_scatter; an exchange of slices and a local sum move as little."""
        x = x.contiguous()
        received = torch.empty_like(x)
        work = dist.all_to_all_single(movable(received), movable(x), async_op=True)

        def finish():
            work.wait()
            parts = received.float().chunk(self.size)
            total = parts[0] + parts[1]
            for part in parts[2:]:
                total += part
            return total.to(x.dtype)

        return finish


class ColumnLinear(torch.autograd.Function):
    """x W^T with this rank's rows of W. The exchange of the input's gradient overlaps the product
    of the weight's gradient."""

    @staticmethod
    def forward(ctx, x, weight, ranks):
        if ranks.slices_sequence:
            x = ranks.gather_sequence(x)
        ctx.save_for_backward(x, weight)
        ctx.ranks = ranks
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        ranks = ctx.ranks
        grad_x = torch.matmul(grad, weight)
        finish = None
        if ranks.slices_sequence:
            finish = ranks.reduce_scatter_async(grad_x)
        elif ranks.size > 1:
            finish = ranks.sum_async(grad_x)
        grad_weight = torch.mm(grad.reshape(-1, grad.shape[-1]).t(), x.view(-1, x.shape[-1]))
        return (finish() if finish else grad_x), grad_weight, None


class Reduce(torch.autograd.Function):
    """The sum of partial outputs over the ranks; with sequence parallelism this rank's slice."""

    @staticmethod
    def forward(ctx, x, ranks):
        ctx.ranks = ranks
        if ranks.slices_sequence:
            return ranks.reduce_scatter_async(x)()
        if ranks.size == 1:
            return x
        if x.dtype == torch.float32:
            ctx.mark_dirty(x)
        return ranks.sum_async(x)()

    @staticmethod
    def backward(ctx, grad):
        ranks = ctx.ranks
        return ranks.gather_sequence(grad) if ranks.slices_sequence else grad, None


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        wide = x.float()
        rms = torch.linalg.vector_norm(wide, dim=-1, keepdim=True) * (1 / math.sqrt(x.shape[-1]))
        scale = rms.square_().add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).mul_(weight).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x, weight, scale = ctx.saved_tensors
        normed, wide = x.float() * scale, grad.float()
        product = wide * normed
        grad_weight = product.view(-1, x.shape[-1]).sum(0).to(weight.dtype)
        mean = torch.mv(product.view(-1, x.shape[-1]), weight.float()).div_(x.shape[-1])
        inner = torch.mul(wide, weight).addcmul_(normed, mean.view(scale.shape), value=-1)
        return inner.mul_(scale).to(x.dtype), grad_weight, None


class Rotate(torch.autograd.Function):
    """Rotary positions: [sequence, batch, heads, dim] to [batch, heads, sequence, dim]."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        a, b = x.permute(1, 2, 0, 3).chunk(2, -1)
        out = x.new_empty((x.shape[1], x.shape[2], x.shape[0], x.shape[3]))
        first, second = out.chunk(2, -1)
        torch.mul(a, cos, out=first).addcmul_(b, sin, value=-1)
        torch.mul(b, cos, out=second).addcmul_(a, sin)
        return out

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        a, b = grad.chunk(2, -1)
        out = grad.new_empty((grad.shape[2], grad.shape[0], grad.shape[1], grad.shape[3]))
        first, second = out.permute(1, 2, 0, 3).chunk(2, -1)
        torch.mul(a, cos, out=first).addcmul_(b, sin)
        torch.mul(b, cos, out=second).addcmul_(a, sin, value=-1)
        return out, None, None


class CausalAttention(torch.autograd.Function):
    """Softmax attention of [heads, sequence, dim], by blocks of queries, so that what no query may
    see is not computed."""

    @staticmethod
    def forward(ctx, q, k, v, hidden_corner):
        q = q * (1 / math.sqrt(q.shape[-1]))
        out = torch.empty_like(q)
        weights = []
        for begin in range(0, q.shape[1], ATTENTION_ROWS):
            end = min(begin + ATTENTION_ROWS, q.shape[1])
            scores = torch.bmm(q[:, begin:end], k[:, :end].transpose(1, 2))
            scores[:, :, begin:].add_(hidden_corner[:end - begin, :end - begin])
            weights.append(torch.softmax(scores, -1))
            out[:, begin:end] = torch.bmm(weights[-1], v[:, :end])
        ctx.save_for_backward(q, k, v, *weights)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, *weights = ctx.saved_tensors
        grad = grad.contiguous()
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for index, p in enumerate(weights):
            begin, end = index * ATTENTION_ROWS, p.shape[2]
            rows = grad[:, begin:end]
            grad_v[:, :end].baddbmm_(p.transpose(1, 2), rows)
            grad_p = torch.bmm(rows, v[:, :end].transpose(1, 2))
            grad_s = torch._softmax_backward_data(grad_p, p, -1, p.dtype)
            grad_q[:, begin:end] = torch.bmm(grad_s, k[:, :end])
            grad_k[:, :end].baddbmm_(grad_s.transpose(1, 2), q[:, begin:end])
        return grad_q.mul_(1 / math.sqrt(q.shape[-1])), grad_k, grad_v, None


class ParallelCrossEntropy(torch.autograd.Function):
    """Mean over valid labels of the loss of logits whose columns are split over the ranks. The
    logits' memory becomes the gradient's."""

    @staticmethod
    def forward(ctx, logits, labels, ranks):
        share = logits.shape[1]
        largest = logits.max(-1).values
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        logits.sub_(largest.unsqueeze(1))
        local = labels - ranks.rank * share
        here = (local >= 0) & (local < share)
        column = local.clamp(0, share - 1).unsqueeze(1)
        own = logits.gather(1, column).squeeze(1) * here
        logits.exp_()
        sums = torch.stack([logits.sum(-1), own])
        dist.all_reduce(sums)
        valid = labels != NO_LABEL
        ctx.save_for_backward(logits, sums[0], column, here, valid)
        return ((sums[0].log() - sums[1]) * valid).sum() / valid.sum()

    @staticmethod
    def backward(ctx, grad):
        exps, sums, column, here, valid = ctx.saved_tensors
        exps.mul_((1 / sums).unsqueeze(1))
        exps.scatter_add_(1, column, -here.to(exps.dtype).unsqueeze(1))
        return exps.mul_((grad * valid / valid.sum()).unsqueeze(1)), None, None


def view(data, dtype, offset, shape):
    kinds = {"F32": torch.float32, "BF16": torch.bfloat16}
    flat = torch.frombuffer(data, dtype=kinds[dtype], offset=offset, count=math.prod(shape))
    return flat.view(shape)


class Llama(torch.nn.Module):
    """A range of its layers, the first with the embedding and the last with the head. Projections
    that read the same input are one matrix."""

    def __init__(self, config, weights, ranks, dtype, sequence, layers):
        super().__init__()
        self.ranks, self.eps = ranks, config.get("rms_norm_eps", 1e-6)
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim = config["hidden_size"] // self.heads
        self.heads //= ranks.size
        self.kv_heads //= ranks.size
        self.layers, self.replicated = layers, []
        self.is_first, self.is_last = 0 in layers, config["num_hidden_layers"] - 1 in layers

        def part(name, axis):
            return weights[name].chunk(ranks.size, axis)[ranks.rank]

        def add(name, tensor):
            self.register_parameter(
                name, torch.nn.Parameter(tensor.to(dtype).clone(memory_format=torch.contiguous_format)))

        def add_norm(name, source):
            add(name, weights[source])
            self.replicated.append(name)

        if self.is_first:
            add("embedding", part("model.embed_tokens.weight", 0))
        for i in layers:
            path = f"model.layers.{i}"
            add(f"qkv_{i}", torch.cat([part(f"{path}.self_attn.{p}_proj.weight", 0) for p in "qkv"]))
            add(f"o_{i}", part(f"{path}.self_attn.o_proj.weight", 1))
            add(f"gate_up_{i}", torch.cat([part(f"{path}.mlp.{p}_proj.weight", 0)
                                           for p in ("gate", "up")]))
            add(f"down_{i}", part(f"{path}.mlp.down_proj.weight", 1))
            add_norm(f"norm_1_{i}", f"{path}.input_layernorm.weight")
            add_norm(f"norm_2_{i}", f"{path}.post_attention_layernorm.weight")
        if self.is_last:
            add_norm("last_norm", "model.norm.weight")
            add("head", part("lm_head.weight", 0))
        frequencies = config.get("rope_theta", 10000.0) ** (
            -torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim)
        angles = torch.arange(sequence, dtype=torch.float64).unsqueeze(1) * frequencies
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)
        rows = min(sequence, ATTENTION_ROWS)
        self.hidden_corner = torch.full((rows, rows), float("-inf"), dtype=dtype).triu_(1)

    def embed(self, ids):
        table, ranks = self.embedding, self.ranks
        if ranks.size == 1:
            return F.embedding(ids, table)
        local = ids - ranks.rank * table.shape[0]
        away = (local < 0) | (local >= table.shape[0])
        rows = F.embedding(local.masked_fill(away, 0), table)
        return Reduce.apply(rows.masked_fill(away.unsqueeze(-1), 0), ranks)

    def attention(self, x, i):
        ranks, dim = self.ranks, self.dim
        qkv = ColumnLinear.apply(x, getattr(self, f"qkv_{i}"), ranks)
        sequence, batch = qkv.shape[:2]
        q, k, v = qkv.view(sequence, batch, -1, dim).split(
            [self.heads, self.kv_heads, self.kv_heads], 2)
        q, k = (Rotate.apply(y, self.cos, self.sin) for y in (q, k))
        v = v.permute(1, 2, 0, 3)
        shared = self.heads // self.kv_heads
        if shared > 1:
            k, v = (y.unsqueeze(2).expand(-1, -1, shared, -1, -1) for y in (k, v))
        flat = [y.reshape(batch * self.heads, sequence, dim) for y in (q, k, v)]
        out = CausalAttention.apply(*flat, self.hidden_corner)
        out = out.view(batch, self.heads, sequence, dim).permute(2, 0, 1, 3)
        out = out.reshape(sequence, batch, self.heads * dim)
        return Reduce.apply(F.linear(out, getattr(self, f"o_{i}")), ranks)

    def mlp(self, x, i):
        gate, up = ColumnLinear.apply(x, getattr(self, f"gate_up_{i}"), self.ranks).chunk(2, -1)
        return Reduce.apply(F.linear(F.silu(gate) * up, getattr(self, f"down_{i}")), self.ranks)

    def forward(self, ids, labels):
        return self.loss(self.hidden(ids), labels)

    def hidden(self, x):
        """Behind these layers, of ids or of what the layers before gave."""
        if self.is_first:
            x = self.embed(x)
        for i in self.layers:
            x = x + self.attention(RmsNorm.apply(x, getattr(self, f"norm_1_{i}"), self.eps), i)
            x = x + self.mlp(RmsNorm.apply(x, getattr(self, f"norm_2_{i}"), self.eps), i)
        return x

    def loss(self, x, labels):
        x = RmsNorm.apply(x, self.last_norm, self.eps)
        logits = ColumnLinear.apply(x, self.head, self.ranks).flatten(0, 1).float()
        if self.ranks.size == 1:
            return F.cross_entropy(logits, labels.flatten(), ignore_index=NO_LABEL)
        return ParallelCrossEntropy.apply(logits, labels.flatten(), self.ranks)


def make_labels(ids):
    """Each position's next id; ids are [sequence, batch]."""
    labels = torch.full_like(ids, NO_LABEL)
    labels[:-1] = ids[1:]
    return labels


def average_bf16(parameters):
    """Over all ranks, in f32 and by buckets. DistributedDataParallel cannot: it broadcasts the
    parameters first, which Gloo refuses to do for bf16."""
    buckets, room = [[]], 0
    for p in reversed(parameters):
        if room < p.numel() and buckets[-1]:
            buckets.append([])
        room = (room if len(buckets[-1]) else BUCKET_ELEMENTS) - p.numel()
        buckets[-1].append(p)
    works = []
    for bucket in buckets:
        flat = torch.cat([p.grad.flatten().float() for p in bucket])
        works.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
    for bucket, flat, work in works:
        work.wait()
        flat.div_(dist.get_world_size())
        for p, mean in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad.copy_(mean.view_as(p))


class Trainer:
    def __init__(self, arguments, config):
        self.ranks = Ranks(arguments.mode)
        dtype = torch.float32 if arguments.dtype == "f32" else torch.bfloat16
        ids = make_ids(config["vocab_size"], arguments.batch, arguments.sequence)
        self.ids = torch.tensor(ids).t().contiguous()
        self.labels = make_labels(self.ids)
        self.llama = Llama(config, read_safetensors(arguments.weights, view), self.ranks, dtype,
                           arguments.sequence, self.layers(config["num_hidden_layers"]))
        self.model = self.llama
        self.parameters = list(self.llama.parameters())
        copies = arguments.mode in ("ddp", "zero") and dist.is_initialized()
        self.averages_itself = copies and dtype != torch.float32
        if copies and not self.averages_itself:
            self.model = torch.nn.parallel.DistributedDataParallel(
                self.llama, gradient_as_bucket_view=True)
        names = [name for name, _ in self.llama.named_parameters()]
        whole = set(self.llama.replicated)
        self.replicated = [p for n, p in zip(names, self.parameters) if n in whole]
        self.sharded = [p for n, p in zip(names, self.parameters) if n not in whole]
        self.norm_over_ranks = self.ranks.size > 1
        # 16-bit parameters have masters in f32, as those of libnxd do.
        self.masters = None
        updated = self.parameters
        if dtype != torch.float32:
            self.masters = updated = [p.detach().float() for p in self.parameters]
        if arguments.mode == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer
            self.optimizer = ZeroRedundancyOptimizer(
                updated, optimizer_class=torch.optim.AdamW, parameters_as_bucket_view=True,
                lr=LEARNING_RATE, weight_decay=0, foreach=True)
        else:
            self.optimizer = torch.optim.AdamW(updated, lr=LEARNING_RATE, weight_decay=0,
                                               foreach=True)

    def layers(self, count):
        return range(count)

    def sum_sliced_norms(self):
        """Norms saw a slice of the sequence each."""
        flat = torch.cat([p.grad.flatten().float() for p in self.replicated])
        dist.all_reduce(flat)
        for p, total in zip(self.replicated, flat.split([p.numel() for p in self.replicated])):
            p.grad.copy_(total.view_as(p))

    def clip(self):
        def squares(parameters):
            grads = [p.grad for p in parameters]
            norms = torch._foreach_norm(grads)
            return torch.stack(norms).float().square().sum()

        total = squares(self.sharded)
        if self.norm_over_ranks:
            dist.all_reduce(total)
        if self.replicated:
            total += squares(self.replicated)
        norm = total.sqrt().item()
        if norm > MAX_NORM:
            torch._foreach_mul_([p.grad for p in self.parameters], MAX_NORM / (norm + 1e-6))

    def update(self):
        if self.masters is None:
            self.optimizer.step()
            return
        with torch.no_grad():
            for p, master in zip(self.parameters, self.masters):
                master.grad = p.grad.float()
            self.optimizer.step()
            for p, master in zip(self.parameters, self.masters):
                p.copy_(master)
                master.grad = None

    def backward(self):
        """Gives the loss."""
        loss = self.model(self.ids, self.labels)
        loss.backward()
        return loss

    def step(self):
        for p in self.parameters:
            p.grad = None
        loss = self.backward()
        if self.averages_itself:
            average_bf16(self.parameters)
        if self.ranks.slices_sequence:
            self.sum_sliced_norms()
        self.clip()
        self.update()
        return loss.item()


class PipelineTrainer(Trainer):
    """A stage on each rank, by 1F1B. All receives of a step are posted before it, so that messages
    move while stages compute."""

    def __init__(self, arguments, config):
        super().__init__(arguments, config)
        self.sharded, self.replicated, self.norm_over_ranks = self.parameters, [], True
        self.rank, self.stages, self.count = dist.get_rank(), dist.get_world_size(), arguments.microbatches
        self.batches = [(ids.contiguous(), labels.contiguous()) for ids, labels in zip(
            self.ids.chunk(self.count, 1), self.labels.chunk(self.count, 1))]
        shape = (*self.batches[0][0].shape, config["hidden_size"])
        self.received = [[torch.empty(shape, dtype=self.parameters[0].dtype)
                          for _ in range(self.count)] for _ in range(2)]

    def layers(self, count):
        each = -(-count // dist.get_world_size())
        return range(count)[dist.get_rank() * each:][:each]

    def post(self, peer, kind):
        """Receives of kind 0, values, or 1, gradients: a function that waits for that of a microbatch."""
        if not 0 <= peer < self.stages:
            return None
        works = [dist.irecv(movable(x), peer, tag=2 * i + kind)
                 for i, x in enumerate(self.received[kind])]

        def wait(i):
            works[i].wait()
            return self.received[kind][i].detach()

        return wait

    def backward(self):
        values, grads = self.post(self.rank - 1, 0), self.post(self.rank + 1, 1)
        inputs, outputs, sends, total = {}, {}, [], torch.zeros(())

        def send(x, peer, tag):
            sends.append((x, dist.isend(movable(x), peer, tag=tag)))

        def forward(i):
            ids, labels = self.batches[i]
            inputs[i] = values(i).requires_grad_() if values else ids
            y = self.llama.hidden(inputs[i])
            outputs[i] = y if grads else self.llama.loss(y, labels) / self.count
            if grads:
                send(y.detach().contiguous(), self.rank + 1, 2 * i)
            else:
                total.add_(outputs[i].detach())

        def backward(i):
            outputs.pop(i).backward(grads(i) if grads else None)
            x = inputs.pop(i)
            if values:
                send(x.grad.contiguous(), self.rank - 1, 2 * i + 1)

        ahead = min(self.count, self.stages - self.rank - 1)
        for i in range(self.count + ahead):
            if i < self.count:
                forward(i)
            if i >= ahead:
                backward(i - ahead)
        for _, work in sends:
            work.wait()
        dist.broadcast(total, self.stages - 1)
        return total


def main():
    arguments = parse_arguments()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{arguments.init}", rank=rank,
                                world_size=size)
    with open(arguments.config, encoding="utf-8") as file:
        config = json.load(file)
    trainer = PipelineTrainer if arguments.mode == "pp" else Trainer
    result = measure(trainer(arguments, config).step, arguments.steps)
    if rank == 0:
        print(json.dumps({**result, "version": torch.__version__}), flush=True)
    if size > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
