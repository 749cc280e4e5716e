"""Draws what may go wrong around layers: tensors overwritten, no differentiation, bad inputs, tapes, gradients."""
import torch

import layers
import nxd
from simulate import Simulated
from tensor_calls import attention, column, linear, mlp, norm, plain, qkv, row, vars_of


def memory_of(t):
    """The first and the last byte."""
    first = int(nxd.raw.ffi.cast("intptr_t", t.data_pointer))
    return first, first + sum((n - 1) * s for n, s in zip(t.shape, t.strides)) * 8 + 8


def overwrite(p):
    """Multiplies a tensor in place: those who have read it must be right, or say that it was overwritten."""
    v = p.pick(lambda v: not v.leaf and not v.is_loss and not v.uneven and 0 not in v.shape and v.tensor.ndim)
    if v is None or p.device != "cpu":
        return
    others = [memory_of(u.tensor) for u in p.variables if u is not v and u.floats and 0 not in u.shape]
    first, last = memory_of(v.tensor)
    if any(a < last and first < b for a, b in others):
        return
    try:
        nxd.ops.call("mul_", "Scalar", v.tensor, -0.5)
    except nxd.NxdError as error:
        p.note("not overwritten:", p.name(v), error)
        return
    v.simulated = p.simulator.run(lambda xs: [x * -0.5 for x in xs], v.simulated)
    p.overwritten = True
    p.note(f"{p.name(v)} *= -0.5")


def takes_gradient(p, v):
    """True if a result is an input itself; a view of one, made without differentiation, takes none."""
    ones = torch.ones(v.simulated.copies[0][p.rank].shape).double()
    try:
        nxd.grad([v.tensor], [v.tensor], [p.tensor(ones, v.tensor.dtype.name.lower())], retain_graph=True)
    except nxd.InvalidArgument:
        return False
    return True


def untracked(p):
    """An operator without differentiation."""
    before = len(p.variables)
    with nxd.no_grad():
        kind = p.r.choice([column, row, norm, mlp, attention, plain, qkv, linear])
        kind(p)
    for v in p.variables[before:]:
        # A norm's sum without a residual is its input, and a bias that is not added is the parameter; libtorch's
        # views say of themselves that they require gradients.
        if v.tensor.requires_grad and takes_gradient(p, v):
            continue
        v.simulated = p.simulator.run(lambda xs: [x.detach() for x in xs], v.simulated, noise=False)
        v.leaf = False
        p.note("without gradients")


def bad(p):
    """A layer is given an input that is none, on one rank or on all."""
    if not p.layers:
        return
    layer = p.r.choice(p.layers)
    if isinstance(layer, layers.Norm):
        return
    victim = p.r.choice([None, p.r.randrange(p.ranks)])
    # Ranks whose forward has no collective do not hear of a rejection before their next one.
    gathers = getattr(layer, "dim", None) is not None or getattr(layer, "parallel", False) or \
        getattr(layer, "gather", False)
    if isinstance(layer, (layers.Qkv, layers.Linear, layers.Column)) and not gathers or \
            isinstance(layer, layers.Row) and not layer.reduce:
        victim = None
    way = p.r.choice(["features", "dtype", "ids"])
    if isinstance(layer, layers.Embedding):
        if p.device != "cpu" and way != "dtype":
            return  # values are read when the graph runs
        good = torch.zeros([p.ranks, 2], dtype=torch.long)
        wrong = torch.full([p.ranks, 2], layer.count if way == "ids" else -1, dtype=torch.long)
        kinds = "i64", "i64"
        if way == "dtype":
            wrong, kinds = good, ("i64", p.dtype)
    else:
        n = next(iter(layer.weights.named.values()))[0].shape[-1]
        n = layer.each if isinstance(layer, layers.Row) and layer.parallel else n
        good = torch.zeros([p.ranks, p.ranks, n]).double()
        wrong = torch.zeros([p.ranks, p.ranks, n + 1]).double() if way != "dtype" else good
        kinds = p.dtype, p.dtype if way != "dtype" else "i64"
    mine = victim is None or p.rank == victim
    given = p.tensor(wrong if mine else good, kinds[mine])
    try:
        layer.module(given)
    except (nxd.InvalidArgument, nxd.Unsupported) as error:
        name = None if victim is None or mine else f"rank {p.context.parallel_source_rank('tensor') + victim}"
        if name and name not in str(error):
            p.say(f"{type(layer).__name__} with bad {way} on {victim}: names another:", error)
        return
    p.say(f"{type(layer).__name__} takes bad {way} of rank {victim}", vars_of(layer))


def taped(p):
    """One layer, forward and backward by a tape."""
    if not p.layers:
        return
    able = (layers.Mlp, layers.Linear, layers.Column)
    layer = p.r.choice([each for each in p.layers if isinstance(each, able)] or [None])
    if layer is None or layer.outputs_of_tape != 1:
        return
    n = next(iter(layer.weights.named.values()))[0].shape[-1]
    parallel = getattr(layer, "parallel", False) or getattr(layer, "dim", None) is not None
    shape = [2, 2, n]
    values = [p.numbers(shape)] * p.ranks if not parallel else [p.numbers(shape) for _ in range(p.ranks)]
    before = len(p.simulator.leaves)
    x = p.simulator.leaf(values, True)
    out, tape = layer.module.tape(p.tensor(values[p.rank]))
    simulated = p.simulator.run(layer.simulate, x, *(layer.named.values() if isinstance(layer, layers.Mlp) else
                                                     (layer.w, layer.b)))
    p.compare(f"{type(layer).__name__} taped", out, simulated)
    same = not parallel and not (isinstance(layer, layers.Column) and not layer.gather)
    dtype = out.dtype.name.lower()
    grads = [p.numbers(simulated.copies[0][k].shape, dtype=dtype) for k in range(p.ranks)]
    grads = [grads[0]] * p.ranks if same else grads
    expected = p.simulator.gradients([simulated], [grads])
    found, = tape.backward(p.tensor(grads[p.rank], dtype))
    p.compare(f"{type(layer).__name__} taped: gradient", found, expected[id(x)])
    for name, whole, weight, over, padding, dim in layer.weights.trained():
        p.compare(f"{type(layer).__name__} taped: gradient of {name}", layer.weights.handles[name].grad,
                  expected[id(weight)], padding, dim)
        layer.weights.handles[name].tensor.grad = None
    del p.simulator.leaves[before:]


def differentiate(p, again):
    """Gradients of some results, by nxd.backward or nxd.grad."""
    r = p.r
    able = [v for v in p.variables if v.floats and any(x.requires_grad for x in v.simulated.copies[0])]
    if not able:
        return
    outputs = r.sample(able, min(len(able), r.choice([1, 2, 3])))
    if r.random() < 0.7 and able[-1] not in outputs:
        outputs.append(able[-1])
    grads = []
    for v in outputs:
        # A loss has the same gradient on all ranks.
        dtype = v.tensor.dtype.name.lower()
        own = [p.numbers(v.simulated.copies[0][k].shape, dtype=dtype) for k in range(p.ranks)]
        grads.append([own[0]] * p.ranks if v.same else own)
    ones = r.random() < 0.2 and all(v.shape == [] for v in outputs)
    if ones:
        grads = [[torch.ones(()).double()] * p.ranks for _ in outputs]
    expected = p.simulator.gradients([v.simulated for v in outputs], grads)
    given = None if ones else [p.tensor(g[p.rank], v.tensor.dtype.name.lower()) for g, v in zip(grads, outputs)]
    p.note("gradients of", [p.name(v) for v in outputs])
    leaves = [v for v in p.variables if v.leaf]
    weights = [(f"{type(layer).__name__}.{name}", layer.weights.handles[name], *rest) for layer in p.layers
               for name, whole, *rest in layer.weights.trained()]
    if r.random() < 0.3 and leaves:
        found = nxd.grad([v.tensor for v in outputs], [v.tensor for v in leaves], given, retain_graph=True)
        for v, g in zip(leaves, found):
            p.compare(f"nxd.grad by {p.name(v)}", g, expected[id(v.simulated)])
        for g in found:  # memory of its own, which another pass does not read
            if g is not None and p.device == "cpu":
                nxd.ops.call("mul_", "Scalar", g, 0.5)
        return
    if again and r.random() < 0.5:
        nxd.backward([v.tensor for v in outputs], given, retain_graph=True)
        p.note("twice")
        expected = {key: Simulated([[None if x is None else 2 * x for x in ranks] for ranks in value.copies])
                    for key, value in expected.items()}
    nxd.backward([v.tensor for v in outputs], given, retain_graph=again)
    for v in leaves:
        p.compare(f"gradient of {p.name(v)}", v.tensor.grad, expected[id(v.simulated)])
        v.tensor.grad = None
    for name, handle, simulated, over, padding, dim in weights:
        p.compare(f"gradient of {name}", handle.grad, expected[id(simulated)], padding, dim)
    for layer in p.layers:
        for name in layer.weights.frozen:
            if layer.weights.handles[name].grad is not None:
                p.say(f"{type(layer).__name__}.{name} is frozen, and has a gradient")
    if weights and r.random() < 0.5 and not p.wrong and all(h.grad is not None for _, h, *_ in weights):
        finish(p, weights, expected)
    for name, handle, *_ in weights:
        handle.tensor.grad = None


def finish(p, weights, expected):
    """Gradients of parameters that several ranks have alike are summed."""
    root = nxd.Sequential(p.context, *[layer.root for layer in p.layers])
    nxd.finish_grads(root)
    p.note("finish_grads")
    for name, handle, simulated, over, padding, dim in weights:
        if over is None:
            continue
        # Copies of the model have the same data, and their gradients are summed.
        copies = p.context.size // p.ranks
        whole = Simulated([[None if ranks[0] is None else copies * sum(ranks[j] for j in over[k])
                            for k in range(p.ranks)] for ranks in expected[id(simulated)].copies])
        p.compare(f"finished gradient of {name}", handle.grad, whole, padding, dim)
