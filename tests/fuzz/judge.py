"""What torchgraphdbg predicts for one program, what the real backward does, and whether the two agree."""

import re

import torch

import torchgraphdbg
from replay import VERSIONS, attributes_of

KINDS = {
    "has been modified by an inplace operation": "modified-in-place",
    "backward through the graph a second time": "graph-freed",
    "detached in-place": "detached-in-place",
    "does not require grad and does not have a grad_fn": "no-grad-fn",
    "is not implemented": "not-differentiable",
    "once_differentiable": "not-differentiable",
}
SAVED_KINDS = ("modified-in-place", "graph-freed", "detached-in-place")
UNHEARD = ("silently-modified", "retained-graph", "not-in-optimizer")  # a recorder's: backward raises nothing for them
STORAGE_KINDS = ("storage-freed", "storage-changed")
FAILURES = (
    "false alarm",
    "miss",
    "wrong node",
    "wrong kind",
    "wrong numbers",
    "wrong structure",
    "wrong set of broken nodes",
    "wrong order",
    "inspecting changed something",
    "inspect raised",
    "process died",
    "wrong line",
    "wrong op",
    "wrong line of a node",
)


class Disagreement(Exception):
    def __init__(self, verdict, detail):
        super().__init__(verdict, detail)
        self.verdict, self.detail = verdict, detail


def kind_of(error):
    """The finding kind that states this error, or None where nothing in the graph foretells it."""
    text = str(error)
    if text.startswith("invalid gradient at index"):
        return "bad-root"
    return next((kind for part, kind in KINDS.items() if part in text), None)


def bare(name):
    return name.split("::")[-1]


# ---- the two graphs, node by node ----


def start_of(tensor):
    if not tensor.is_leaf:
        return tensor.grad_fn
    try:
        return tensor.expand_as(tensor).grad_fn.next_functions[0][0]
    except RuntimeError as error:
        raise Disagreement("storage: a root without data", str(error)) from error


def align(report, roots, numbers=True):
    """The grad_fn behind each node of the report, found by walking both graphs along the same edges.
    numbers: their sequence numbers must be equal as well."""
    nodes, known, stack = {}, {}, []
    given = report.graph.roots
    if len(given) != len(roots):
        raise Disagreement("wrong structure", f"{len(given)} roots for {len(roots)}")

    def pair(node, function, way):
        if node is None or function is None:
            if node is not None or function is not None:
                raise Disagreement("wrong structure", f"{way}: {node} against {function}")
            return
        if node.index in nodes or function in known:
            if nodes.get(node.index) is not function or known.get(function) != node.index:
                raise Disagreement("wrong structure", f"{way}: {node} is not {function}")
            return
        if node.name != bare(function.name()):
            raise Disagreement("wrong structure", f"{way}: {node.name} for {function.name()}")
        number = function._sequence_nr()
        if numbers and node.sequence_nr != (None if number == 2**64 - 1 else number):
            raise Disagreement("wrong structure", f"{node}: sequence number {node.sequence_nr} for {number}")
        nodes[node.index], known[function] = function, node.index
        stack.append((node, function))

    for r, (node, tensor) in enumerate(zip(given, roots)):
        if tensor.requires_grad and not (tensor.is_leaf and node is None):
            pair(node, start_of(tensor), f"root {r}")
        elif node is not None:
            raise Disagreement("wrong structure", f"root {r}: {node} where there is no grad_fn")
    while stack:
        node, function = stack.pop()
        edges = function.next_functions
        if len(node.next) != len(edges):
            raise Disagreement("wrong structure", f"{node}: {len(node.next)} edges for {len(edges)}")
        for k, (edge, (target, input_nr)) in enumerate(zip(node.next, edges)):
            pair(edge.target, target, f"edge {k} of {node}")
            if target is not None and edge.input_nr != input_nr:
                raise Disagreement("wrong structure", f"edge {k} of {node}: input {edge.input_nr} for {input_nr}")
    if len(nodes) != len(report.graph.nodes):
        raise Disagreement("wrong structure", f"{len(report.graph.nodes)} nodes for {len(nodes)}")
    return nodes


# ---- what plain PyTorch says about the saved tensors ----

def unpack_all(function):
    """{attribute: text of the error} for each saved tensor that cannot be unpacked."""
    broken = {}
    for name in attributes_of(function):
        try:
            getattr(function, name)
        except RuntimeError as error:
            broken[name] = str(error)
    return broken


def check_saved(node, function):
    """Shape, dtype, strides and version of every saved tensor that is whole."""
    if node.kind in ("python", "copy-slices"):
        return
    for saved in node.saved:
        if saved.state != "ok" or saved.index is not None:
            continue
        tensor = getattr(function, "_saved_" + saved.name)
        facts = [
            (tuple(tensor.shape), tuple(saved.shape)),
            (tensor.dtype, saved.dtype),
            (tensor._version, saved.version),
            (tensor.stride() if tensor.layout == torch.strided else saved.strides, saved.strides),
        ]
        for there, here in facts:
            if there != here:
                raise Disagreement("wrong structure", f"saved {saved.name} of {node}: {here} for {there}")


def check_broken(report, nodes):
    """Every broken node that backward would run is a finding, and no other is."""
    said = {}
    for finding in report.findings:
        if finding.kind in SAVED_KINDS and finding.node is not None:
            said.setdefault(finding.node.index, []).append(finding)
    for index, function in nodes.items():
        node = report.graph.nodes[index]
        broken = unpack_all(function)
        kinds = {kind_of(text) for text in broken.values()}
        if node.order is not None and kinds - {None} and index not in said:
            raise Disagreement("wrong set of broken nodes", f"{node} is broken ({broken}) and no finding says so")
        for finding in said.get(index, []):
            if node.kind == "copy-slices" or finding.kind == "detached-in-place":
                continue  # Python does not reach what it wraps, and its getters are not refused after detach_()
            if finding.kind not in kinds:
                raise Disagreement(
                    "wrong set of broken nodes", f"{finding.kind} at {node}, where plain PyTorch finds {broken}"
                )
            if finding.kind == "modified-in-place":
                versions = {
                    VERSIONS.search(text).groups()
                    for name, text in broken.items()
                    if name in (f"_saved_{finding.saved}", "saved_tensors") and VERSIONS.search(text)
                }
                if versions and node.kind != "python" and versions_of(finding) not in versions:
                    raise Disagreement("wrong numbers", f"{finding.message} where plain PyTorch finds {broken}")
        check_saved(node, function)


def versions_of(finding):
    """(current, saved) as the finding's saved tensor and its message state them."""
    found = [s for s in finding.node.saved if s.name == finding.saved and s.index == finding.saved_index]
    if len(found) != 1:
        raise Disagreement(
            "wrong numbers", f"{len(found)} saved tensors of {finding.node} are {finding.saved} {finding.saved_index}"
        )
    numbers = str(found[0].version), str(found[0].saved_version)
    if not all(re.search(rf"(?<![\d.]){n}(?![\d.])", finding.message) for n in numbers):
        raise Disagreement("wrong numbers", f"{numbers} are not in: {finding.message}")
    return numbers


# ---- one program ----


def predict(program):
    """(report, tensors that were given)"""
    env = program.env
    roots = [env[name] for name in program.roots]
    inputs = None if program.inputs is None else [env[name] for name in program.inputs]
    watched = [v for v in env.values() if isinstance(v, torch.Tensor) and not v.is_inference()]
    before = [(v._version, v.data_ptr() if v.layout == torch.strided else 0) for v in watched]
    state = torch.get_rng_state()
    options = {"create_graph": True} if program.flags.get("create_graph") else {}
    try:
        report = torchgraphdbg.inspect(roots, inputs=inputs, **options)
    except Exception as error:
        raise Disagreement("inspect raised", f"{type(error).__name__}: {error}") from error
    if before != [(v._version, v.data_ptr() if v.layout == torch.strided else 0) for v in watched] or not torch.equal(
        state, torch.get_rng_state()
    ):
        raise Disagreement("inspecting changed something", "a version, a data pointer or the random state")
    return report, roots


def place(finding):
    """Where in backward it strikes: -1 = before any node."""
    before = finding.kind in ("no-grad-fn", "bad-root") or finding.node is None or finding.node.order is None
    return -1 if before else finding.node.order


def line(finding):
    order = "" if finding.node is None else f" (node {finding.node.index}, order {finding.node.order})"
    return f"{finding.severity} {finding.kind}{order}: {finding.message}"


def compare(report, error, at):
    """(verdict, detail). error: what the real backward raised, None, or "died"; at: index of the last node that ran."""
    loud = [f for f in report.findings if f.severity == "error" and f.kind not in UNHEARD]
    first = loud[0] if loud else None
    may = [f for f in report.findings if f.severity == "warning" and f.kind not in UNHEARD]
    places = [place(f) for f in loud]
    if places != sorted(places):
        raise Disagreement("wrong order", "; ".join(map(line, loud)))
    if error is None:
        if first is not None:
            if first.kind in STORAGE_KINDS:
                return "storage: said to raise, passed", line(first)
            raise Disagreement("false alarm", line(first))
        if [f for f in may if f.kind in SAVED_KINDS + STORAGE_KINDS]:
            return "may, passed", line(may[0])
        return ("healthy" if not may else "warned of something else"), "; ".join(map(line, may))
    kind = None if error == "died" else kind_of(error)
    order = None if at is None else report.graph.nodes[at].order
    end = places[0] if first is not None else len(report.graph.nodes)
    candidates = [f for f in loud[:1] + may if f is first or place(f) <= end]
    here = [f for f in candidates if (None if place(f) == -1 else f.node.index) == at]
    text = (
        "the process died" if error == "died" else f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"
    )
    where = "before any node" if at is None else f"at {report.graph.nodes[at]} (order {order})"
    told = f"really: {text} {where}; said: {'; '.join(map(line, candidates)) or 'nothing'}"
    if kind is None:
        fed = [] if at is None else [e.target.index for e in report.graph.nodes[at].next if e.target is not None]
        storage = [f for f in here + candidates if f.kind in STORAGE_KINDS and (f in here or f.node.index in fed)]
        if storage:
            return (
                "storage: "
                + ("died" if error == "died" else "raised")
                + " as "
                + ("said" if storage[0].severity == "error" else "feared"),
                told,
            )
        if first is not None and order is not None and places[0] < order and first.kind not in STORAGE_KINDS:
            raise Disagreement("false alarm", told)
        if error == "died":
            return "storage: died, not foretold", told
        return ("raised as said, in other words" if here else "raised by the op's or the user's own code"), told
    if first is not None and first.kind in STORAGE_KINDS and order is not None and places[0] < order:
        return "storage: said to raise, passed", told
    same = [f for f in here if f.kind == kind]
    if kind == "modified-in-place":
        numbers = VERSIONS.search(str(error)).groups()
        if same and not [f for f in same if versions_of(f) == numbers]:
            raise Disagreement("wrong numbers", told)
        same = [f for f in same if versions_of(f) == numbers]
    if at is not None and not same and any(saved.state == "hooked" for saved in report.graph.nodes[at].saved):
        return "raised by a saved-tensor hook", told
    if same:
        return ("exact" if same[0].severity == "error" else "may, raised"), told
    if here:
        raise Disagreement("wrong kind", told)
    elsewhere = [f for f in candidates if f.kind == kind]
    raise Disagreement("wrong node" if elsewhere else "miss", told)


def judge(program, say, recorded=False):
    """Judge one program. say(key, value) reports progress, so that something is known even if the process dies.
    recorded: a recorder is on, and was when the program ran, so lines and ops are judged as well."""
    report, roots = predict(program)
    nodes = align(report, roots)
    if program.seed % 20 == 0:
        str(report), report.to_dict()
    text = program.text()
    if (
        program.seed % 2 == 0
        and "hook" not in text
        and "checkpoint" not in text
        and "save_on_cpu" not in text
        and program.profile != "storage"
    ):
        check_broken(report, nodes)
    if recorded:
        import attribution  # which needs this module

        attribution.check(program, report)
    ran = []

    def running(index):
        ran.append(index)
        if program.profile == "storage":
            say("at", index)

    handles = [f.register_prehook(lambda *_, index=i: running(index)) for i, f in nodes.items()]
    say("predicted", (report.to_dict(), None) if program.profile == "storage" else None)
    error = None
    try:
        exec(program.action, program.env)
    except Exception as caught:
        error = caught
    for handle in handles:
        handle.remove()
    at = ran[-1] if error is not None and ran else None
    if error is None:
        captured = (
            "accumulate-grad" if "autograd.grad(" in program.action else None
        )  # grad() hands leaves' gradients back
        expected = sorted((n.order, n.index) for n in report.graph.nodes if n.order is not None and n.kind != captured)
        if [i for _, i in expected] != ran:
            names = [str(report.graph.nodes[i]) for i in ran]
            raise Disagreement(
                "wrong order", f"really ran {names}, said {[str(report.graph.nodes[i]) for _, i in expected]}"
            )
    return compare(report, error, at)
