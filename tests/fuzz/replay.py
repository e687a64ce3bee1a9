"""What plain PyTorch says of each statement: the program once more, with a look at every saved tensor after each one."""

import re

import torch

import functions

VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")
FREED = "a second time"
SETS = {"copy_", "fill_", "index_put_", "masked_fill_", "zero_"}  # what x[i] = v comes down to
OPERATORS = {"+=": "add_", "-=": "sub_", "*=": "mul_", "/=": "div_"}
INSIDE = re.compile(r"\bm\d+\(|\.step\(|clip_grad|load_state_dict|p\.mul_|nn\.init|zero_grad")
PLAIN_OUT = re.compile(r"torch\.(\w+)\((?:(?!torch\.).)*\bout=")
SAME_OP = {"swapaxes_": {"swapaxes_", "transpose_"}, "acosh_": {"acosh_", "arccosh_"}}

_attributes = {}


def attributes_of(function):
    """Names of what this class of node saves, tensors or not."""
    names = _attributes.get(type(function))
    if names is None:
        names = [a for a in dir(function) if a.startswith("_saved_")] + ["saved_tensors"] * hasattr(
            type(function), "saved_tensors"
        )
        _attributes[type(function)] = names
    return names


def writers_in(statement):
    """Ops of a statement that may write to a tensor, from its text; None where code that it calls decides."""
    if INSIDE.search(statement):
        return None
    found = set()
    for name in re.findall(r"(\w+_)\(", statement):
        found |= SAME_OP.get(name, {name})
    found |= {op for sign, op in OPERATORS.items() if f" {sign} " in statement}
    if re.search(r"\]\s=\s", statement):
        found |= SETS
    for name in re.findall(r"F\.(\w+)\([^()]*inplace=True", statement):
        found.add(f"{name}_")
    found |= {name for name in PLAIN_OUT.findall(statement)}
    if "Doubled" in statement:
        found.add("mul_")
    return found


class Saved:
    """One attribute of one node: at which statements its version moved, by how much, and when it was freed."""

    def __init__(self, statement):
        self.made = statement
        self.version, self.bumps = 0, []  # since it was saved; (statement, by how much)
        self.freed = self.resized = None
        self.silent = []  # statements after which its bytes were others, at the same version
        self.bytes = self.size = None
        self.many = False

    def see(self, statement, function, name):
        try:
            value = getattr(function, name)
        except RuntimeError as error:
            found = VERSIONS.search(str(error))
            if found:
                current = int(found[1]) - int(found[2])
                if current != self.version:
                    self.bumps.append((statement, current - self.version))
                    self.version = current
            elif FREED in str(error) and self.freed is None:
                self.freed = statement
            return
        self.many = isinstance(value, (tuple, list)) and len(value) > 1
        tensors = list(value) if isinstance(value, (tuple, list)) else [value]
        tensors = [t for t in tensors if isinstance(t, torch.Tensor) and t.layout == torch.strided]
        try:
            size = [(t.untyped_storage().nbytes(), tuple(t.shape)) for t in tensors]
            whole = all(t.untyped_storage().nbytes() >= t.numel() * t.element_size() or 0 in t.stride() for t in tensors)
            now = [bytes(t.detach().contiguous().view(torch.uint8).flatten().tolist()) for t in tensors] if whole else None
        except RuntimeError:  # a wrapper without a storage, a conjugate view
            size = now = None
        if self.size is not None and size != self.size:
            self.resized = statement
        elif self.bytes is not None and now is not None and now != self.bytes:
            self.silent.append(statement)
        self.size, self.bytes = size, now


class Replay:
    """Runs the program again. saved: {(function, attribute): Saved}; env: its variables at the end."""

    def __init__(self, program):
        self.env = {name: getattr(functions, name) for name in functions.__all__}
        self.saved, self.functions = {}, {}
        torch.manual_seed(program.seed)
        for k, (line, _) in enumerate(program.lines, 1):
            try:
                exec(compile(line, f"/replay/{program.seed}.py", "exec"), self.env)
            except Exception:
                pass
            self.look(k)

    def tensors(self):
        for name, value in list(self.env.items()):
            if isinstance(value, torch.Tensor):
                yield value
            elif isinstance(value, (tuple, list)) and name[0] == "r":
                yield from (v for v in value if isinstance(v, torch.Tensor))

    def look(self, statement):
        for (function, name), saved in self.saved.items():
            saved.see(statement, function, name)
        stack = []
        for tensor in self.tensors():
            try:
                stack.append(tensor.grad_fn)
            except RuntimeError:
                pass  # a view whose base was written to in a forbidden way
        while stack:
            function = stack.pop()
            if function is None or function in self.functions:
                continue
            self.functions[function] = statement
            for name in attributes_of(function):
                saved = self.saved[function, name] = Saved(statement)
                saved.see(statement, function, name)
            stack += [f for f, _ in function.next_functions]
