"""What generated programs call: custom Functions of every kind, and a few helpers that keep a program's text short."""

import contextlib
import threading

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

__all__ = [
    "F",
    "torch",
    "suppress",
    "leaf",
    "tensor",
    "in_thread",
    "as_constant",
    "keep_on_ctx",
    "Square",
    "Unread",
    "Sometimes",
    "Exponential",
    "Doubled",
    "OnceSquare",
    "Pair",
    "Masked",
    "NoGradient",
    "Split",
    "Modern",
    "Intermediate",
    "Unsaved",
    "LastOnly",
    "identity_hook",
    "halve_hook",
    "pack_as_is",
    "pack_copy",
]
suppress = contextlib.suppress


def leaf(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype).requires_grad_()


def tensor(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype)


def in_thread(work):
    """The result of work() on a thread of its own, whose sequence numbers start at 0 again."""
    result = []

    def run():
        with contextlib.suppress(Exception):
            result.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if not result:
        raise RuntimeError("the work raised")
    return result[0]


def as_constant(x):
    with torch.no_grad():
        return x * 1


def identity_hook(*args):
    return None


def halve_hook(grad):
    return None if grad is None else grad * 0.5


def pack_as_is(x):
    return x


def pack_copy(x):
    return x.clone()


class Square(torch.autograd.Function):
    """Reads what it saved."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Unread(torch.autograd.Function):
    """Saves and never looks."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Sometimes(torch.autograd.Function):
    """Looks only where the flag says so."""

    @staticmethod
    def forward(ctx, x, look):
        ctx.save_for_backward(x)
        ctx.look = look
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        if ctx.look:
            (x,) = ctx.saved_tensors
            grad = grad + 0 * x
        return grad * 3, None


class Exponential(torch.autograd.Function):
    """Saves its own output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * grad


class Doubled(torch.autograd.Function):
    """Works in place."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class OnceSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Pair(torch.autograd.Function):
    """Two inputs, two outputs, both inputs saved."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, product, total):
        x, y = ctx.saved_tensors
        return product * y + total, product * x + total


class Masked(torch.autograd.Function):
    """A second output without derivative, which it saves."""

    @staticmethod
    def forward(ctx, x):
        keep = (x.abs() > 0.5).to(x.dtype)
        ctx.mark_non_differentiable(keep)
        ctx.save_for_backward(keep)
        return x * keep, keep

    @staticmethod
    def backward(ctx, grad, _):
        (keep,) = ctx.saved_tensors
        return grad * keep


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return None


class Split(torch.autograd.Function):
    """Outputs that may stay unused; their gradients are then None."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x * 1, x * 2

    @staticmethod
    def backward(ctx, one, two):
        (x,) = ctx.saved_tensors
        total = None
        for grad, factor in ((one, 1), (two, 2)):
            if grad is not None:
                total = factor * grad if total is None else total + factor * grad
        return total


class Modern(torch.autograd.Function):
    """forward and setup_context apart, with a vmap rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y, grad * x


class Intermediate(torch.autograd.Function):
    """Saves a tensor that is neither input nor output, and one that is None."""

    @staticmethod
    def forward(ctx, x):
        y = x.sin()
        ctx.save_for_backward(x.cos(), None)
        return y

    @staticmethod
    def backward(ctx, grad):
        cosine, _ = ctx.saved_tensors
        return grad * cosine


class Unsaved(torch.autograd.Function):
    """Saves nothing and asks for it all the same."""

    @staticmethod
    def forward(ctx, x):
        return x + 1

    @staticmethod
    def backward(ctx, grad):
        assert ctx.saved_tensors == ()
        return grad.clone()


class LastOnly(torch.autograd.Function):
    """Asks for its saved tensors through a helper that its code does not name."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 5

    @staticmethod
    def backward(ctx, grad):
        x = keep_on_ctx(ctx)
        return grad * 5 + 0 * x


def keep_on_ctx(ctx):
    return ctx.saved_tensors[-1]
