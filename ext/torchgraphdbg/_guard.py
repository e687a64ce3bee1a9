"""Refuses to load on another torch than the one this installation was compiled against.

The extension reads private fields of libtorch at offsets that change from release to release. On the wrong torch it
would show nonsense or crash, so the version and the git hash must be the same.
"""
import os
import sys
import types
import warnings

REBUILD = ("Rebuild it against the torch that is installed:\n"
           "    pip install --no-build-isolation --force-reinstall --no-deps torchgraphdbg\n"
           "or, in its source tree:\n"
           "    pip install --no-build-isolation --force-reinstall --no-deps .")


def check() -> None:
    """Raise ImportError with the way out unless the extension belongs to this Python and this torch."""
    try:
        from . import _build
    except ImportError:
        raise ImportError("torchgraphdbg's extension is not built here. In its source tree run\n"
                          "    pip install --no-build-isolation .\n"
                          "or, to use it from there,\n"
                          "    python setup.py build_ext --inplace") from None
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"torchgraphdbg was built for torch {_build.TORCH_VERSION}, and no torch is installed for "
                          f"{sys.executable}. Install that one:\n"
                          f"    pip install torch=={_build.TORCH_VERSION.split('+')[0]}\n"
                          f"or another. {REBUILD}") from None
    found = torch.__version__, torch.version.git_version or "unknown"
    built = _build.TORCH_VERSION, _build.TORCH_GIT
    if tuple(map(str, found)) != built:
        raise ImportError(f"torchgraphdbg was built for torch {built[0]} (git {built[1]}), but the torch that is "
                          f"installed is {found[0]} (git {found[1]}). {REBUILD}")
    if sys.implementation.cache_tag != _build.PYTHON:
        raise ImportError(f"torchgraphdbg was built for {_build.PYTHON}, and this is "
                          f"{sys.implementation.cache_tag}. {REBUILD}")


def postpones() -> bool:
    """Whether the package must be importable without its extension: names then come when one is asked for.

    `python -m torchgraphdbg run` imports the package before the script has had a chance to set what torch reads when
    it is imported. `import torchgraphdbg.auto` must not raise on a torch that this was not built for, and imports the
    package first. Any other import checks at once, and raises.
    """
    if _runs_as_command():
        return True
    try:
        check()
    except ImportError:
        if not _is_being_imported("torchgraphdbg.auto"):
            raise
        return True
    return False


def warn(message: str) -> None:
    """A RuntimeWarning, also where warnings are errors: what went wrong is ours, and must not stop the program."""
    level = 1
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:  # to the line of the program's that called us
        file = frame.f_code.co_filename
        if "importlib" not in file or "_bootstrap" not in file:  # warnings does not count those either
            if os.path.dirname(file) != os.path.dirname(__file__):
                break
            level += 1
        frame = frame.f_back
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=level)
    except RuntimeWarning:
        pass


def _runs_as_command() -> bool:
    """Is the package imported because of `python -m torchgraphdbg`? Python's own word for it: argv[0] is "-m" while
    the module is being located."""
    if sys.argv[:1] != ["-m"]:
        return False
    given = sys.orig_argv
    return any(word == "torchgraphdbg" and before.startswith("-") and before.endswith("m") or
               word.startswith("-") and word.endswith("mtorchgraphdbg") for before, word in zip(given, given[1:]))


def _is_being_imported(name: str) -> bool:
    """Looked up on the stack: an import of a submodule runs the package first, and tells it nothing."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>" and frame.f_locals.get("name") == name:
            return True
        frame = frame.f_back
    return False
