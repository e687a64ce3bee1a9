"""python -m torchgraphdbg run: a script as the real __main__, with the recording on.

The script gets the module __main__ that the interpreter made, emptied, and the sys.argv and sys.path[0] that it would
have. Torch is not imported before the script does it: the recording starts in that moment. An exception passes through
unchanged; only the lines of ours are taken out of the traceback that the interpreter prints.
"""
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
import types
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder

from . import _guard

VALUED = ("-d", "--directory")  # options of `run` that take a word


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is the command's own, and what belongs to the script that `run` runs: all behind its name."""
    if arguments[:1] != ["run"]:
        return arguments, []
    at = 1
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] not in ("-", "--"):
        if arguments[at] == "-m":
            return arguments[:at + 2], arguments[at + 2:]
        if arguments[at].startswith("-m"):
            return arguments[:at + 1], arguments[at + 1:]
        at += 2 if arguments[at] in VALUED else 1
    at += arguments[at:at + 1] == ["--"]
    return arguments[:at + 1], arguments[at + 1:]


def run(target: str, arguments: list[str], *, as_module: bool, directory: str) -> None:
    """Run it to its end. Raises what it raises, SystemExit included, and exits where it cannot be found."""
    directory = os.path.abspath(directory)
    _after_import("torch", lambda: _arm(directory))
    names: dict[str, object] = {}
    try:
        code = _find_module(target, arguments, names) if as_module else _find_script(target, arguments, names)
        main = vars(sys.modules["__main__"])
        for name in set(main) - {"__builtins__", "__annotations__"}:
            del main[name]
        main.update(names, __name__="__main__", __doc__=None)
        exec(code, main)
    except BaseException as error:
        if not isinstance(error, SystemExit):
            _explain_refusal(error, directory)
            _hide_own_lines(error)
        raise


# ---- what is run ----

def _find_script(path: str, arguments: list[str], names: dict[str, object]) -> types.CodeType:
    """Its code, and what __main__ is to hold beside; sets sys.argv and sys.path[0]."""
    if path == "-":
        sys.exit("torchgraphdbg run: a script on standard input is not supported, save it to a file")
    whole = os.path.join(os.getcwd(), path)
    sys.argv = [path, *arguments]
    if pkgutil.get_importer(whole) is not None:  # a directory or a zip file
        _replace_first_path(whole, also_when_safe=True)
        spec = importlib.machinery.PathFinder.find_spec("__main__", [whole])
        if spec is None:
            sys.exit(f"{sys.executable}: can't find '__main__' module in {whole!r}")
        return _code_of(spec, names)
    _replace_first_path(os.path.dirname(os.path.realpath(path)))
    try:
        with io.open_code(whole) as file:
            code = pkgutil.read_code(file)  # of a .pyc; None for source
            if code is None:
                file.seek(0)
                source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {whole!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        sys.exit(2)
    kind = importlib.machinery.SourceFileLoader if code is None else importlib.machinery.SourcelessFileLoader
    names.update(__file__=whole, __cached__=None, __loader__=kind("__main__", whole), __package__=None, __spec__=None)
    return code or compile(source, whole, "exec", dont_inherit=True)


def _find_module(name: str, arguments: list[str], names: dict[str, object]) -> types.CodeType:
    """The same for a module; its packages are imported, as python -m does."""
    sys.argv = ["-m", *arguments]
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise  # a module that it imports
        spec = None
    except ValueError:
        spec = None
    if spec is None or not hasattr(spec.loader, "get_code"):
        package = name.removesuffix(".__main__")
        why = "" if package == name else f"; {package!r} is a package and cannot be directly executed"
        sys.exit(f"{sys.executable}: No module named {name}{why}")
    code = _code_of(spec, names)
    sys.argv[0] = str(spec.origin)
    return code


def _code_of(spec: importlib.machinery.ModuleSpec, names: dict[str, object]) -> types.CodeType:
    code: types.CodeType | None = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    if code is None:
        sys.exit(f"{sys.executable}: No code object available for {spec.name}")
    names.update(__file__=spec.origin, __cached__=spec.cached, __loader__=spec.loader, __package__=spec.parent,
                 __spec__=spec)
    return code


def _replace_first_path(folder: str, also_when_safe: bool = False) -> None:
    """sys.path[0] is the directory that python -m puts there, and none where -P or -I keeps it out."""
    safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    if not safe:
        sys.path[0] = folder
    elif also_when_safe:
        sys.path.insert(0, folder)


# ---- when torch is there ----

class _Finder(MetaPathFinder):
    """Finds a module as the others do, and has something done when it is imported; then it is gone."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Sequence[str] | None,
                  target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            found = None if finder is self or find is None else find(name, path, target)
            if isinstance(found, importlib.machinery.ModuleSpec):
                if found.loader is not None and hasattr(found.loader, "exec_module"):
                    found.loader = _Loader(found.loader, self)
                return found
        return None


class _Loader(Loader):
    """Stands in for the real loader until the module runs: whoever looks at it then sees the real one."""

    def __init__(self, real: Loader, finder: _Finder) -> None:
        self.real, self.finder = real, finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.real.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self.real
        if module.__spec__ is not None:
            module.__spec__.loader = self.real
        self.real.exec_module(module)
        if self.finder in sys.meta_path:  # not by another thread, not twice
            sys.meta_path.remove(self.finder)
            self.finder.then()


def _after_import(name: str, then: Callable[[], None]) -> None:
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))


def _arm(directory: str) -> None:
    """Start recording, and explain what backward raises. Whatever goes wrong here, the script goes on."""
    from . import auto
    if auto.start():
        try:
            import torchgraphdbg
            torchgraphdbg.watch(None, directory)
        except Exception as error:
            _guard.warn(f"torchgraphdbg run cannot explain what backward raises: {error}")


# ---- when it raises ----

REFUSALS = ("is being used in an in-place operation", "is being modified inplace")  # PyTorch's words


def _explain_refusal(error: BaseException, directory: str) -> None:
    """An in-place op that PyTorch refused: the finding as a note, and a dump. A backward that raises is watch()'s."""
    core = sys.modules.get(f"{__package__}._core")
    if core is None or type(error) is not RuntimeError or not any(words in str(error) for words in REFUSALS):
        return
    try:
        report = core.auto_refused()
        if report is None:
            return
        finding = report.findings[0]
        rank = f".rank{os.environ['RANK']}" if os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ else ""
        os.makedirs(directory, exist_ok=True)
        name = os.path.join(directory, f"refused{rank}")
        for suffix in (".json", ".txt", ".svg"):
            report.save(name + suffix)
        note = f"torchgraphdbg: {finding.message}\n  {finding.hint}\n  {name}.svg"
        if hasattr(error, "add_note"):
            error.add_note(note)
        else:  # Python 3.10 prints no notes
            error.__notes__ = [*getattr(error, "__notes__", []), note]
            print(note, file=sys.stderr)
    except Exception as failure:
        _guard.warn(f"torchgraphdbg run cannot explain this: {failure}")


def _hide_own_lines(error: BaseException) -> None:
    """Has the interpreter, and whatever excepthook the script has set, see the traceback that begins in the script."""
    folder = os.path.dirname(__file__) + os.sep
    traceback = error.__traceback__
    while traceback is not None and (traceback.tb_frame.f_code.co_filename.startswith(folder) or
                                     traceback.tb_frame.f_code.co_filename.startswith("<frozen ")):
        traceback = traceback.tb_next
    hook = sys.excepthook

    def shown(kind: type[BaseException], value: BaseException, whole: types.TracebackType | None) -> None:
        sys.excepthook = hook
        if value is error:
            whole = sys.last_traceback = value.__traceback__ = traceback
        hook(kind, value, whole)

    sys.excepthook = shown
