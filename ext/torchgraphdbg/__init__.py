"""Shows what PyTorch's backward would meet, without running it.

    import torchgraphdbg

    torchgraphdbg.dump(loss)                               # verdict on stderr, picture in torchgraphdbg.svg
    torchgraphdbg.dump(loss, "graph.svg", params=model)    # also asks which parameters get no gradient
    report = torchgraphdbg.inspect(loss, params=model)     # the report alone; print(report) is the text
    torchgraphdbg.assert_healthy(loss, params=model)       # AssertionError where backward would fail

    with torchgraphdbg.record(params=model) as rec:        # for a step or a few: then reports name lines
        loss = criterion(model(x), y)
        loss.backward()
    print(rec.report())                                    # of the last backward, whether it raised or not

    torchgraphdbg.watch(model, "tgd-out")                  # before a training loop: a dump when a step goes wrong
    import torchgraphdbg.auto                              # light recording from here on: dump(loss) names lines

A report names every node at which backward would raise and why: a saved tensor changed in place, a graph that an
earlier backward freed, a root that is cut off, a parameter that is not reached. It is a snapshot: it holds no
tensor alive, and making it runs no hook and changes nothing.

    report.verdict           one sentence
    report.findings          what is wrong, most important first: kind, severity, message, hint, node, saved, ...
    report.ok                no error and no warning
    report.graph             nodes and edges with their saved tensors
    report.summary           counts and sizes
    report.save("g.json")    .svg, .html, .json, .gv or .txt; torchgraphdbg.load("g.json") is the report again
    report.timeline          inside record(): a Span for each node that backward ran; node.time, node.gradient are its own
    report.save("g.trace.json")    the same for Perfetto
    report.diff(other)       what changed to another report

What is wrong with a graph is a finding, never an exception. Exceptions are TypeError and ValueError for wrong
arguments, OSError for a file that cannot be written, and Error for what torch or Graphviz could not do.
"""
import typing as _typing

from . import _guard

if _typing.TYPE_CHECKING or not _guard.postpones():  # a wrong torch raises here, and says how to rebuild
    from ._core import (
        Edge,
        Error,
        Finding,
        Gradient,
        Graph,
        GraphSequence,
        InputMetadata,
        Node,
        Report,
        SavedTensor,
        SourceLocation,
        Span,
        assert_healthy,
        dump,
        inspect,
        load,
        record,
        watch,
    )
else:
    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        _guard.check()
        from . import _core
        globals().update({each: getattr(_core, each) for each in __all__})
        return globals()[name]

__version__ = "0.1.0"

__all__ = [
    "Edge",
    "Error",
    "Finding",
    "Gradient",
    "Graph",
    "GraphSequence",
    "InputMetadata",
    "Node",
    "Report",
    "SavedTensor",
    "SourceLocation",
    "Span",
    "assert_healthy",
    "dump",
    "inspect",
    "load",
    "record",
    "watch",
]
