from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, final, overload

import torch
from torch.autograd.graph import GradientEdge
from torch.autograd.graph import Node as _TorchNode

from ._diff import Difference

_T_co = TypeVar("_T_co", covariant=True)

_Start: TypeAlias = torch.Tensor | _TorchNode | GradientEdge
_Root: TypeAlias = _Start | Iterable[_Start]
_Params: TypeAlias = (
    torch.nn.Module
    | torch.optim.Optimizer
    | Mapping[str, torch.Tensor]
    | Iterable[tuple[str, torch.Tensor]]
    | Iterable[torch.Tensor]
)
_Inputs: TypeAlias = torch.Tensor | Iterable[torch.Tensor]
_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]

_Severity: TypeAlias = Literal["error", "warning", "note"]

class _Writable(Protocol):
    def write(self, text: str, /) -> object: ...

class Error(RuntimeError):
    """What torch or Graphviz could not do."""

@final
class GraphSequence(Sequence[_T_co], Generic[_T_co]):
    """Nodes or edges of a graph, in capture order. Slices are views; items are made when they are asked for."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> _T_co: ...
    @overload
    def __getitem__(self, key: slice, /) -> GraphSequence[_T_co]: ...
    def __iter__(self) -> Iterator[_T_co]: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def index(self, value: Any, start: int = 0, stop: int | None = None, /) -> int: ...
    def count(self, value: Any, /) -> int: ...

@final
class InputMetadata:
    """What backward expects of one gradient that a node receives."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Sizes, -1 for a symbolic one; None where the input is unused."""
    @property
    def dtype(self) -> torch.dtype | None: ...
    @property
    def device(self) -> str | None:
        """One of "cpu", "cuda:0", ..., or None."""
    @property
    def gradient(self) -> Gradient | None:
        """What it was like in the backward that was recorded; None where none was."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class SavedTensor:
    """A tensor that a node keeps for backward, as it stood: read without unpacking it."""

    @property
    def name(self) -> str:
        """The attribute's name without _saved_; "saved_tensors" of a custom Function."""
    @property
    def index(self) -> int | None:
        """Place in a list of saved tensors, else None."""
    @property
    def node(self) -> Node: ...
    @property
    def state(self) -> str:
        """Either "ok", or what backward would find wrong with it."""
    @property
    def shape(self) -> tuple[int, ...] | None:
        """Sizes, -1 for a symbolic one; None where no shape can be told."""
    @property
    def dtype(self) -> torch.dtype | None: ...
    @property
    def device(self) -> str | None:
        """One of "cpu", "cuda:0", ..., or None."""
    @property
    def strides(self) -> tuple[int, ...] | None:
        """Strides in elements, or None."""
    @property
    def contiguous(self) -> bool | None: ...
    @property
    def saved_version(self) -> int | None:
        """The tensor's version when it was saved, or None where there is no tensor to look at."""
    @property
    def version(self) -> int | None:
        """The tensor's version at the time of the report, or None."""
    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
    @property
    def storage(self) -> int | None:
        """Identity of its storage: equal where memory is shared."""
    @property
    def storage_bytes(self) -> int | None: ...
    @property
    def has_hooks(self) -> bool:
        """Packed by a saved-tensor hook or a checkpoint: not looked into."""
    @property
    def is_output(self) -> bool:
        """The node's own result rather than an input."""
    @property
    def is_leaf(self) -> bool: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Edge:
    """Where one gradient goes in backward, from source to target."""

    @property
    def source(self) -> Node: ...
    @property
    def target(self) -> Node | None:
        """None: a null edge, no gradient is wanted there."""
    @property
    def input_nr(self) -> int:
        """Which input of target it is added to."""
    @property
    def gradient(self) -> Gradient | None:
        """What target received there: what source handed on where Gradient.edges is 1, else the sum of all of them."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Node:
    """A node of the graph: one step of backward. Equal where it is the same node of the same graph."""

    @property
    def index(self) -> int:
        """Its place in Graph.nodes."""
    @property
    def name(self) -> str:
        """As grad_fn.name() without namespace: "MulBackward0"."""
    @property
    def kind(self) -> str: ...
    @property
    def inner(self) -> str | None:
        """CopySlices: the name of the node it wraps."""
    @property
    def sequence_nr(self) -> int | None:
        """Counts up in the forward; None for AccumulateGrad."""
    @property
    def order(self) -> int | None:
        """Its place in backward's order, from 0; None where backward does not run it."""
    @property
    def parameter(self) -> str | None:
        """AccumulateGrad: the parameter's name from params=."""
    @property
    def hooks(self) -> dict[str, int]:
        """How many hooks of each kind it has: pre, tensor_pre, retain_grad, post."""
    @property
    def unchecked(self) -> bool:
        """Whether its saved tensors could not be read."""
    @property
    def inputs(self) -> tuple[InputMetadata, ...]:
        """Metadata of each gradient it receives."""
    @property
    def saved(self) -> tuple[SavedTensor, ...]:
        """The tensors it keeps for backward."""
    @property
    def next(self) -> tuple[Edge, ...]:
        """Its edges, in the order of grad_fn.next_functions."""
    @property
    def module(self) -> str | None:
        """Path of the module that made it, "" for the outermost; None outside any, or where no recorder was on."""
    @property
    def where(self) -> SourceLocation | None:
        """The forward's source line; None where no recorder was on."""
    @property
    def stack(self) -> tuple[SourceLocation, ...]:
        """where, and the lines of the program that led there, innermost first; library frames are left out."""
    @property
    def made_by(self) -> Node | None:
        """The node whose backward made it, under create_graph; None in the forward, or where no recorder was on."""
    @property
    def time(self) -> Span | None:
        """When it ran in the backward that was recorded; None where none was."""
    @property
    def gradient(self) -> Gradient | None:
        """What the gradients were like that it received, all together; None where no backward was recorded."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Span:
    """When one node ran, and how long. Without what torchgraphdbg did itself meanwhile."""

    @property
    def name(self) -> str: ...
    @property
    def node(self) -> Node | None:
        """None for one inside another node: of a nested backward."""
    @property
    def thread(self) -> int:
        """The thread that it ran on, as torch counts them."""
    @property
    def depth(self) -> int:
        """How many nodes ran around it on its thread."""
    @property
    def began(self) -> float:
        """Seconds after the call of backward."""
    @property
    def ended(self) -> float:
        """Seconds after the call of backward."""
    @property
    def self(self) -> float:
        """Seconds it took on the host, without the nodes inside it."""
    @property
    def total(self) -> float:
        """Seconds it took on the host, with the nodes inside it."""
    @property
    def after(self) -> float:
        """Of these, seconds after it ended: hooks, sums of gradients, freed memory."""
    @property
    def device(self) -> float | None:
        """Seconds it took on its device; None on the CPU, or where that is not known."""
    @property
    def queued(self) -> float | None:
        """Seconds its work waited for the device; None on the CPU."""
    @property
    def stream(self) -> int | None:
        """The device's stream; None on the CPU."""
    @property
    def first_use(self) -> bool:
        """The first of its type, dtype, device and shape that was timed: may include one-time costs."""
    @property
    def raised(self) -> bool: ...
    @property
    def repeats(self) -> int:
        """How often nodes of its name, module and line were timed."""
    @property
    def median(self) -> float:
        """Seconds they took in the median: on the device, else as self."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Gradient:
    """What the gradient was like that a node received, after the hooks on it. None where it was not looked at."""

    @property
    def norm(self) -> float | None:
        """Over the finite elements, as the next ones."""
    @property
    def rms(self) -> float | None:
        """Root of the mean square: comparable between tensors of different size."""
    @property
    def mean(self) -> float | None:
        """Of a complex gradient: of its real part."""
    @property
    def absmax(self) -> float | None:
        """Largest magnitude."""
    @property
    def absmin(self) -> float | None:
        """Smallest magnitude that is not zero; None on a device."""
    @property
    def numel(self) -> int | None: ...
    @property
    def nan(self) -> int | None:
        """How many elements are NaN."""
    @property
    def inf(self) -> int | None:
        """How many elements are infinite."""
    @property
    def zeros(self) -> int | None:
        """How many elements are exactly zero."""
    @property
    def underflowed(self) -> int | None:
        """How many are not zero, and below the smallest normal number of the dtype; None on a device."""
    @property
    def unchecked(self) -> str | None:
        """Why it was not looked at. "no tensor": the gradient is None."""
    @property
    def edges(self) -> int:
        """How many edges lead here: what one of them brought is known where it is the only one."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Graph:
    """The autograd graph as it stood: a snapshot that holds no tensor and no node of torch."""

    @property
    def nodes(self) -> GraphSequence[Node]:
        """Every node, a root's before the nodes it leads to."""
    @property
    def edges(self) -> GraphSequence[Edge]:
        """Every edge, null edges included, node by node."""
    @property
    def roots(self) -> tuple[Node | None, ...]:
        """The node of each root as given; None for a root without grad_fn."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class SourceLocation:
    """A line of the program: file, line, function. str() is "net.py:31"."""

    file: Final[str]
    line: Final[int]
    function: Final[str | None]
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Finding:
    """One thing that is wrong with the graph, or worth knowing. What is absent is None."""

    @property
    def kind(self) -> str:
        """What is wrong, as a slug: "modified-in-place"."""
    @property
    def severity(self) -> _Severity: ...
    @property
    def message(self) -> str:
        """The finding in words."""
    @property
    def hint(self) -> str | None:
        """What to do about it."""
    @property
    def node(self) -> Node | None:
        """The node that raises or loses the gradient."""
    @property
    def saved(self) -> str | None:
        """The saved tensor's attribute without _saved_."""
    @property
    def saved_index(self) -> int | None:
        """Its place in a list of saved tensors."""
    @property
    def parameter(self) -> str | None: ...
    @property
    def reason(self) -> str | None:
        """Why a gradient is missing, as a slug."""
    @property
    def op(self) -> str | None:
        """The op that ran at where; None where no recorder was on."""
    @property
    def where(self) -> SourceLocation | None:
        """The source line to change; None where no recorder was on."""
    @property
    def stack(self) -> tuple[SourceLocation, ...]:
        """where, and the lines of the program that led there, innermost first; library frames are left out."""
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Report:
    """What backward would meet: a snapshot that any thread may read. str(report) is the text report."""

    @property
    def verdict(self) -> str:
        """One sentence that says whether backward will work."""
    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong or worth knowing, most important first."""
    @property
    def ok(self) -> bool:
        """No error and no warning among the findings."""
    @property
    def graph(self) -> Graph: ...
    @property
    def timeline(self) -> tuple[Span, ...] | None:
        """A span for each node that ran in the backward that was recorded, as they began; None where none was."""
    def diff(self, other: Report, /) -> Difference:
        """What changed from this report to the other one."""
    @property
    def summary(self) -> dict[str, int]:
        """Counts and sizes: nodes, depth, saved bytes, parameters reached."""
    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python values: what the .json file holds."""
    def save(
        self,
        path: _Path,
        *,
        redact: bool = False,
        detail: int | str = "auto",
        focus: str | Node | Finding | None = None,
    ) -> None:
        """Write the report to a file. The suffix picks the format: .svg, .html, .json, .gv, .txt or .trace.json."""
    def _repr_svg_(self) -> str: ...
    def _repr_html_(self) -> str: ...

def inspect(
    root: _Root, *, params: _Params | None = None, inputs: _Inputs | None = None, create_graph: bool = False
) -> Report:
    """Say what backward would meet, without running it. Prints nothing and writes nothing."""

def dump(
    root: _Root,
    path: _Path | Sequence[_Path] | None = "torchgraphdbg.svg",
    *,
    params: _Params | None = None,
    inputs: _Inputs | None = None,
    create_graph: bool = False,
    file: _Writable | None = None,
    quiet: bool = False,
    redact: bool = False,
    detail: int | str = "auto",
    focus: str | None = None,
) -> Report:
    """Inspect a graph, print the report, save it to a file, and return it."""

def assert_healthy(
    root: _Root, *, params: _Params | None = None, inputs: _Inputs | None = None, create_graph: bool = False
) -> None:
    """Raise AssertionError with the text report where inspect() finds an error or a warning."""

def load(path: _Path) -> Report:
    """A report back from the .json file that it was saved to."""

@final
class record:
    """Record what runs inside a with block, for one step or a few, so that a report names lines."""

    def __new__(
        cls, params: _Params | None = None, *, checksum: bool = False, timeline: bool = True, statistics: bool = True
    ) -> record: ...
    def __enter__(self) -> record:
        """Start recording."""
    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> Literal[False]:
        """Stop recording. An exception passes, with the finding that explains it as a note."""
    def report(self, params: _Params | None = None) -> Report:
        """The report on the newest attempt: a backward, or an in-place operation that PyTorch refused."""
    @property
    def reports(self) -> tuple[Report, ...]:
        """One for each attempt, newest last; the last 16."""

@final
class watch:
    """Stay armed in a training loop: when a backward raises, or a loss or a gradient is not finite, write a dump."""

    def __new__(
        cls,
        params: _Params | None,
        directory: _Path = "torchgraphdbg",
        *,
        every: int = 1,
        max_dumps: int = 10,
        forward: bool = False,
    ) -> watch: ...
    def remove(self) -> None:
        """Stop watching and undo all of it. Nothing the second time."""
    def __enter__(self) -> watch:
        """The watch itself; armed again where it was removed."""
    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> Literal[False]:
        """As remove()."""

def auto_start() -> None:
    """Start the light recording of this process, unless it is on. torchgraphdbg.auto is the way to it."""

def auto_stop() -> None:
    """Stop what auto_start() started, if it is on."""

def auto_refused() -> Report | None:
    """The report on the newest in-place operation that PyTorch refused since auto_start(), or None."""

def built_for() -> str:
    """The torch that this extension was built for: its version, a space, its git hash."""
