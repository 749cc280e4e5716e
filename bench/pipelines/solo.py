"""The same model and steps on one rank of a world of its own, whose model is whole: microbatches of all copies in turn."""
import numpy

import nxd
from batches import ADAMW_EPS, IGNORED, batch
from program import host


class Solo:
    """make(context) gives the model. shifted: labels are compared with the tokens before them."""

    length_factor = 1

    def __init__(self, plan, copies, make, shifted, extra_inputs):
        self.plan, self.copies, self.shifted, self.extra_inputs = plan, copies, int(shifted), extra_inputs
        self.context = nxd.Context(rank=0, size=1, seed=1)
        self.context.init_model_parallel()
        self.model = make(self.context)
        self.make_optimizer()

    def close(self):
        self.optimizer.close()
        self.model.close()
        self.context.finalize()
        self.context.close()

    def make_optimizer(self):
        self.optimizer = (nxd.Sgd(self.model, learning_rate=0.05, momentum=0.9) if self.plan["optimizer"] == "sgd" else
                          nxd.AdamW(self.model, learning_rate=0.01, eps=ADAMW_EPS, weight_decay=0.1))

    def set_step(self, step):
        self.context.set_step(step)

    def batch(self, event, rank):
        event = dict(event, length=event["length"] * self.length_factor + self.shifted)
        return [*batch(self.plan, event, rank, self.shifted), *self.extra_inputs(self.plan, event, rank)]

    def parts(self, event):
        """Yields the microbatches of each copy: their inputs, and how many tokens count."""
        parts = self.plan["microbatches"]
        for rank in range(self.copies):
            columns = [[None] * parts if each is None else numpy.split(each, parts) for each in self.batch(event, rank)]
            for number, given in enumerate(zip(*columns)):
                yield rank, number, given, int((given[1][:, self.shifted:] != IGNORED).sum())

    def run(self, event, training):
        """The loss, and each copy's states. Gradients are added to the model's."""
        self.model.train(training)
        step, first = self.context.step
        parts, by_tokens = list(self.parts(event)), self.plan["loss"] == "TOKENS"
        tokens, loss, states = sum(valid for *_, valid in parts), 0.0, [[] for _ in range(self.copies)]
        for rank, number, given, valid in parts:
            self.context.set_step(step, first + number)
            with nxd.grad_enabled(training):
                own = self.model(*(None if each is None else nxd.tensor(each) for each in given))
                own, *more = own if isinstance(own, (tuple, list)) else [own]
            states[rank] += [host(each) for each in more[:1]]
            weight = valid / max(tokens, 1) if by_tokens else 1 / self.plan["microbatches"] / self.copies
            if weight:
                loss += weight * own.item()
                if training and own.requires_grad:
                    (own * weight).backward()
        # As a pipeline does: another run of the step draws other random bits.
        self.context.set_step(step, first + self.plan["microbatches"] * training)
        return loss, [numpy.concatenate(each) if each else None for each in states]

    def step(self, max_norm):
        """Gives the norm."""
        norm = self.optimizer.step(max_norm=max_norm).norm
        self.model.zero_grad()
        return norm

    def freeze(self, name, frozen):
        self.model.parameter(name).set_trainable(not frozen)

    def trainable(self):
        return [(each.name, each.tensor.requires_grad) for each in self.model.parameters()]

    def value(self, name):
        return host(self.model.parameter(name).tensor)

    def buffer(self, name, _):
        return host(self.model.buffer(name))

    def reload(self):
        """Nothing changes here."""
