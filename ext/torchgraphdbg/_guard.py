"""Refuses to load on another torch than the one this installation was compiled against.

The extension reads private fields of libtorch at offsets that change from release to release. On the wrong torch it
would show nonsense or crash, so the version and the git hash must be the same.
"""
import sys

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
