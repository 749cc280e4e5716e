"""The same model and steps in one process of PyTorch: a copy of the module for each data-parallel rank, whose buffers go
their own ways, and one optimizer."""
import math

import numpy
import torch

from batches import ADAMW_EPS, IGNORED, batch


class Reference:
    def __init__(self, plan, path, copies):
        self.plan, self.path = plan, path
        self.copies = [torch.jit.load(path) for _ in range(copies)]
        self.make_optimizer()

    def batch(self, event, rank):
        return batch(self.plan, event, rank)

    def set_step(self, step):
        """Nothing here is drawn."""

    def make_optimizer(self):
        # Tied parameters are one, with its first name.
        by_name, owners = [dict(copy.named_parameters()) for copy in self.copies], {}
        for name, parameter in by_name[0].items():
            owners.setdefault(parameter.data_ptr(), name)
        self.names = list(owners.values())
        self.parameters = {name: [each[name] for each in by_name] for name in self.names}
        first = [each[0] for each in self.parameters.values()]
        self.optimizer = (torch.optim.SGD(first, 0.05, momentum=0.9) if self.plan["optimizer"] == "sgd" else
                          torch.optim.AdamW(first, 0.01, eps=ADAMW_EPS, weight_decay=0.1))

    def run(self, event, training):
        """The loss, and each copy's logits. Gradients are added to the copies'."""
        by_tokens, parts = self.plan["loss"] == "TOKENS", self.plan["microbatches"]
        batches = [self.batch(event, rank) for rank in range(len(self.copies))]
        tokens, loss, logits = sum(int((labels != IGNORED).sum()) for _, labels in batches), 0.0, []
        for copy, given in zip(self.copies, batches):
            copy.train(training)
            logits.append([])
            for ids, labels in zip(*(numpy.split(each, parts) for each in given)):
                with torch.set_grad_enabled(training):
                    own, predicted = copy(torch.from_numpy(ids), torch.from_numpy(labels))
                logits[-1].append(predicted.detach().numpy())
                valid = int((labels != IGNORED).sum())
                weight = valid / max(tokens, 1) if by_tokens else 1 / parts
                if weight == 0:
                    continue
                loss += weight * own.item() / (1 if by_tokens else len(self.copies))
                if own.requires_grad:
                    (weight * own).backward()
        return loss, [numpy.concatenate(each) for each in logits]

    def gradients(self):
        """Over the copies, which lose theirs."""
        share = 1 if self.plan["loss"] == "TOKENS" else 1 / len(self.copies)
        found = {}
        for name, each in self.parameters.items():
            there = [parameter.grad.to_dense() for parameter in each if parameter.grad is not None]
            found[name] = sum(there) * share if there else None
            for parameter in each:
                parameter.grad = None
        return found

    def step(self, max_norm):
        """Gives the norm."""
        gradients = self.gradients()
        norm = math.sqrt(sum(float((each.double() ** 2).sum()) for each in gradients.values() if each is not None))
        factor = min(1.0, max_norm / (norm + 1e-6)) if max_norm else 1.0
        for name, each in self.parameters.items():
            trained = gradients[name] is not None and each[0].requires_grad
            each[0].grad = gradients[name] * factor if trained else None
        self.optimizer.step()
        for each in self.parameters.values():
            each[0].grad = None
            for other in each[1:]:
                other.data.copy_(each[0].data)
        return norm

    def freeze(self, name, frozen):
        for parameter in self.parameters[name]:
            parameter.requires_grad_(not frozen)

    def trainable(self):
        return [(name, each[0].requires_grad) for name, each in self.parameters.items()]

    def value(self, name):
        return self.parameters[name][0].detach().numpy()

    def buffer(self, name, rank):
        return self.copies[rank].state_dict()[name].numpy()

    def reload(self):
        """As from files: all copies have the first one's buffers, and other attributes are those of the module's file."""
        buffers, values = dict(self.copies[0].named_buffers()), self.parameters
        state = self.optimizer.state_dict()
        self.copies = [torch.jit.load(self.path) for _ in self.copies]
        self.make_optimizer()
        self.optimizer.load_state_dict(state)
        for copy in self.copies:
            for name, buffer in copy.named_buffers():
                buffer.copy_(buffers[name])
        for name, each in self.parameters.items():
            for parameter in each:
                parameter.data.copy_(values[name][0].data)
                parameter.requires_grad_(values[name][0].requires_grad)
