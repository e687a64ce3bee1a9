"""Random programs as Python text: each statement is chosen by what the variables hold and run at once."""

import bisect
import collections
import random
import warnings

import torch

import functions
from statements import (
    BINARY,
    CUSTOM,
    EARLIER,
    HOOKS,
    IN_PLACE,
    MODES,
    MODULES,
    MULTIPLE,
    NO_GRAD,
    SCRATCH,
    STEP,
    STORAGE,
    UNARY,
    VIEWS,
)

warnings.simplefilter("ignore")

PROFILES = {"ops": 47, "writes": 15, "modules": 10, "higher": 10, "views": 10, "storage": 8}


count_of_nodes = torch._C._autograd._get_sequence_nr


def usable(tensor):
    """False for a view that PyTorch refuses to say anything about, after a forbidden write to its base."""
    try:
        return tensor.requires_grad in (True, False) and tensor.is_leaf in (True, False)
    except RuntimeError:
        return False


class Program:
    """text() can be run alone, with this folder on the path.

    Statement k is line k of `file`, so that a recorder's lines are numbers of statements.
    """

    @staticmethod
    def start(seed):
        """The random source of a program and what it draws first, its profile."""
        rng = random.Random(seed)
        return rng, rng.choices(list(PROFILES), list(PROFILES.values()))[0]

    def __init__(self, seed):
        self.seed = seed
        self.rng, self.profile = self.start(seed)
        self.file = f"/programs/{seed}.py"
        self.lines = []
        self.numbers = []  # how many nodes this thread had made before and after each statement
        self.attributed, self.unnamed = collections.Counter(), []  # attribution.py's
        self.level = "off"  # of the recorder that is on
        self.env = {name: getattr(functions, name) for name in functions.__all__}
        self.count = 0
        self.roots, self.inputs, self.action, self.flags = [], None, None, {}
        torch.manual_seed(seed)
        self.generate()

    # ---- running statements ----

    def run(self, line, may_raise=True):
        """Run one statement; False where it raised."""
        try:
            self.numbers.append(count_of_nodes())
            exec(compile("\n" * len(self.lines) + line, self.file, "exec"), self.env)
        except Exception as error:
            assert may_raise, f"{line}: {error}"
            first = str(error).strip().splitlines()[:1]
            self.lines.append((line, f"{type(error).__name__}: {(first or [''])[0][:90]}"))
            return False
        else:
            self.lines.append((line, None))
            return True
        finally:
            self.numbers.append(count_of_nodes())

    def statement_of(self, sequence_nr):
        """The statement that made the node with this number on the main thread, or None."""
        k = bisect.bisect_right(self.numbers, sequence_nr)
        return k // 2 + 1 if k % 2 == 1 else None

    def fresh(self):
        self.count += 1
        return f"t{self.count}"

    def assign(self, expression, may_raise=True, prefix=""):
        name = self.fresh()
        if self.run(f"{prefix}{name} = {expression}", may_raise):
            return name
        return None

    def text(self):
        head = [
            "import warnings",
            "import torch.utils.checkpoint",
            "from functions import *",
            "warnings.simplefilter('ignore')",
            f"torch.manual_seed({self.seed})",
        ]
        body = [
            f"{line if error is None else self.attempt(line, error)}  # statement {k}"
            for k, (line, error) in enumerate(self.lines, 1)
        ]
        return "\n".join(head + body + ([self.action] if self.action else []))

    @staticmethod
    def attempt(line, error):
        """A statement that raises, perhaps after it has changed something."""
        if line.startswith("with "):
            return f"try: exec({line!r})\nexcept Exception: pass  # {error}"
        return f"with suppress(Exception): {line}  # {error}"

    # ---- choosing ----

    def tensors(self):
        return [
            n
            for n, v in self.env.items()
            if n[0] in "tlw" and n[1:].isdigit() and isinstance(v, torch.Tensor) and usable(v)
        ]

    def pick(self, names=None):
        """A tensor, the newer the likelier."""
        names = self.tensors() if names is None else names
        if not names:
            return None
        return self.rng.choice(names[-5:] if self.rng.random() < 0.6 else names)

    def partner(self, x):
        shape = self.env[x].shape
        same = [n for n in self.tensors() if self.env[n].shape == shape]
        return self.pick(same if same and self.rng.random() < 0.85 else None)

    def fits(self, condition, value):
        try:
            for letter in condition:
                if letter in "1234" and not (value.dim() >= 1 if letter == "1" else value.dim() == int(letter)):
                    return False
                if letter == "r" and not value.is_floating_point():
                    return False
                if letter == "c" and not value.is_complex():
                    return False
                if letter == "f" and not (value.is_floating_point() or value.is_complex()):
                    return False
                if letter == "s" and not (value.dim() == 2 and value.size(0) == value.size(1)):
                    return False
                if letter == "n" and value.numel() == 0:
                    return False
        except RuntimeError:
            return False
        return True

    def choose(self, table):
        """(template, x, y) that fits, or None."""
        for _ in range(12):
            x = self.pick()
            if x is None:
                return None
            template, condition = self.rng.choice(table)
            if self.env[x].numel() <= 4096 and self.fits(condition, self.env[x]):
                return template, x, self.partner(x)
        return None

    # ---- statements ----

    def expression(self, table, prefix=""):
        found = self.choose(table)
        if found:
            template, x, y = found
            self.assign(template.format(x=x, y=y), prefix=prefix)

    def several(self):
        found = self.choose(MULTIPLE)
        if found:
            template, x, y = found
            self.run(template.format(x=x, y=y, a=self.fresh(), b=self.fresh()))

    def in_place(self, table=IN_PLACE):
        found = self.choose(table)
        if not found:
            return
        template, x, y = found
        value, line = self.env[x], template.format(x=x, y=y)
        if value.is_leaf and value.requires_grad and self.rng.random() < 0.8 or self.rng.random() < 0.1:
            if not line.startswith("with "):
                line = (NO_GRAD[0] if self.rng.random() < 0.9 else NO_GRAD[1]) + line
        self.run(line)

    def hook(self):
        x = self.pick([n for n in self.tensors() if self.env[n].requires_grad])
        if x:
            self.run(self.rng.choice(HOOKS).format(x=x, y=self.partner(x), n=self.rng.choice([0, 1, 5])))

    def earlier(self):
        x = self.pick([n for n in self.tensors() if self.env[n].requires_grad and not self.env[n].is_complex()])
        leaves = [n for n in self.tensors() if self.env[n].requires_grad and self.env[n].is_leaf]
        inner = [n for n in self.tensors() if self.env[n].requires_grad and not self.env[n].is_leaf]
        if x and leaves and inner:
            template = self.rng.choices([t for t, _ in EARLIER], [w for _, w in EARLIER])[0]
            self.run(template.format(s=f"{x}.sum()", l=self.rng.choice(leaves), z=self.rng.choice(inner)))

    def delete(self):
        name = self.pick([n for n in self.tensors() if n[0] == "t"])
        if name and len(self.tensors()) > 4:
            shape, dtype = tuple(self.env[name].shape), self.env[name].dtype
            self.run(f"del {name}")
            self.run(f"s = [torch.zeros({shape}, dtype={dtype}).add_(1).zero_() for _ in range(3)]; del s")

    def scratch(self):
        """Tensors of the same size that nothing keeps, written to: what comes next gets their addresses."""
        x = self.pick()
        if x and self.env[x].numel() <= 4096 and self.env[x].layout == torch.strided:
            self.run(self.rng.choice(SCRATCH).format(x=x))

    def gradient_of(self):
        """Gradients with a graph of their own join the variables."""
        x = self.pick([n for n in self.tensors() if self.env[n].requires_grad and not self.env[n].is_complex()])
        y = self.pick([n for n in self.tensors() if self.env[n].requires_grad])
        if x and y:
            name = self.fresh()
            self.run(f"{name}, = torch.autograd.grad({x}.sum(), [{y}], create_graph=True, allow_unused=True)")
            if self.env.get(name) is None:
                self.env.pop(name, None)

    def module(self):
        text, shape = self.rng.choice(MODULES)
        name = f"m{self.count}"
        self.run(f"{name} = {text}", may_raise=False)
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            if shape is None:
                argument = "torch.tensor([[0, 1], [2, 2]])"
            else:
                dtype = next((p.dtype for p in self.env[name].parameters()), torch.float32)
                fitting = [
                    n for n in self.tensors() if tuple(self.env[n].shape) == shape and self.env[n].dtype == dtype
                ]
                argument = (
                    self.pick(fitting)
                    if fitting and self.rng.random() < 0.8
                    else self.assign(
                        f"{self.rng.choice(['leaf', 'tensor'])}({', '.join(map(str, shape))}, dtype={dtype})",
                        may_raise=False,
                    )
                )
            if "MultiheadAttention" in text:
                argument = ", ".join([argument] * 3)
            prefix = self.rng.choice(MODES) if self.rng.random() < 0.1 else ""
            result = f"r{self.count}"
            if self.run(f"{prefix}{result} = {name}({argument})"):
                self.count += 1
                values = self.env[result]
                if isinstance(values, torch.Tensor):
                    self.assign(result)
                else:
                    for k, value in enumerate(values):
                        if isinstance(value, torch.Tensor):
                            self.assign(f"{result}[{k}]")
            for p in list(self.env[name]._parameters)[:2]:
                if self.env[name]._parameters[p] is not None and self.rng.random() < 0.2:
                    self.assign(f"{name}._parameters[{p!r}]")
            if self.rng.random() < 0.4:
                if self.rng.random() < 0.5:
                    self.earlier()
                self.run(self.rng.choice(STEP).format(m=name))
            for _ in range(self.rng.randint(0, 2)):
                self.statement()

    def statement(self):
        weights = {
            "unary": 30,
            "view": 10,
            "binary": 20,
            "custom": 6,
            "several": 5,
            "in_place": 16,
            "hook": 4,
            "earlier": 2.5,
            "delete": 4,
            "moded": 2.5,
        }
        if self.profile == "views":
            weights.update(view=30, in_place=36, unary=18)
        if self.profile == "writes":
            weights.update(in_place=40, delete=8)
        if self.profile == "higher":
            weights.update(gradient=8, in_place=8, custom=8)
        kind = self.rng.choices(list(weights), list(weights.values()))[0]
        if kind == "unary":
            self.expression(UNARY)
        elif kind == "view":
            self.expression(VIEWS)
        elif kind == "binary":
            self.expression(BINARY)
        elif kind == "custom":
            self.expression(CUSTOM)
        elif kind == "moded":
            self.expression(self.rng.choice([UNARY, BINARY, CUSTOM]), prefix=self.rng.choice(MODES))
        elif kind == "gradient":
            self.gradient_of()
        else:
            getattr(self, kind)()
        if self.rng.random() < (0.8 if self.profile == "writes" else 0.25):
            self.scratch()

    # ---- the whole ----

    def generate(self):
        rng = self.rng
        dtype = rng.choices(["torch.float64", "torch.float32", "torch.complex64", "torch.bfloat16"], [60, 25, 12, 3])[0]
        shape = rng.choices(["3, 3", "4", "2, 3, 3", "", "1, 4, 4, 4"], [60, 12, 14, 6, 8])[0]
        for k in range(rng.randint(2, 3)):
            self.run(f"l{k} = leaf({shape + ', ' if shape else ''}dtype={dtype})", may_raise=False)
        self.run(f"w0 = tensor({shape + ', ' if shape else ''}dtype={dtype})", may_raise=False)
        if self.profile == "modules":
            for _ in range(rng.randint(1, 2)):
                self.module()
        for _ in range(rng.randint(3, 16)):
            self.statement()
        if self.profile == "higher":
            self.gradient_of()
            for _ in range(rng.randint(0, 4)):
                self.statement()
        self.finish()

    def finish(self):
        rng = self.rng
        live = [n for n in self.tensors() if self.env[n].requires_grad and not self.env[n].is_sparse]
        if not live:
            return
        made = [n for n in live if not self.env[n].is_leaf]
        if made and rng.random() < 0.9:
            live = made
        count = rng.choices([1, 2, 3, 4], [50, 25, 15, 10])[0]
        chosen = [self.pick(live) for _ in range(count)]
        if rng.random() < 0.55:  # one loss
            terms = [f"({n}{' * 1' if rng.random() < 0.5 else ''}).abs().sum()" for n in chosen]
            loss = self.assign(" + ".join(terms))
            if loss is None:
                return
            roots = [loss]
        else:
            roots = list(dict.fromkeys(chosen)) if rng.random() < 0.9 else chosen
        if rng.random() < 0.1:
            self.earlier()
        if self.profile == "storage":  # last: a forward over such tensors may end the process as well
            for _ in range(rng.randint(1, 2)):
                self.in_place(STORAGE)
        if rng.random() < 0.02:
            cut = [n for n in self.tensors() if not self.env[n].requires_grad and self.env[n].is_floating_point()]
            if cut:
                roots.insert(rng.randint(0, len(roots)), rng.choice(cut))
        left = self.tensors()
        live = [n for n in left if self.env[n].requires_grad]
        self.roots = [r for r in roots if r in left]
        inputs = None
        if rng.random() < 0.25:
            leaves = [n for n in live if self.env[n].is_leaf and self.env[n].requires_grad]
            inner = [n for n in live if not self.env[n].is_leaf and self.env[n].requires_grad]
            inputs = rng.sample(leaves, min(len(leaves), rng.randint(0, 2))) + rng.sample(
                inner, min(len(inner), rng.randint(0, 2))
            )
        self.inputs = inputs or None
        if not self.roots:
            return
        gradients = ", ".join(f"torch.ones_like({r})" for r in self.roots)
        options = ""
        if rng.random() < 0.2:
            options += ", retain_graph=True"
        if rng.random() < (0.4 if self.profile == "higher" else 0.06):
            options += ", create_graph=True"
            self.flags["create_graph"] = True
        listed = ", ".join(self.roots)
        if self.inputs and rng.random() < 0.4 and all(self.env[n].is_leaf for n in self.inputs):
            wanted = f"[{', '.join(self.inputs)}]"
            self.action = f"torch.autograd.grad([{listed}], {wanted}, [{gradients}], allow_unused=True{options})"
        else:
            pruned = f", inputs=[{', '.join(self.inputs)}]" if self.inputs else ""
            self.action = f"torch.autograd.backward([{listed}], [{gradients}]{options}{pruned})"
