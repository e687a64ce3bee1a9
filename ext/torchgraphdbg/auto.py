"""Light recording from here on, so that a later report names lines.

    import torchgraphdbg.auto       # at the top of a script or in a notebook's first cell

    torchgraphdbg.dump(loss)        # anywhere later: who changed the tensor, where the chain was cut

Importing it starts the recording for the whole process: lines and modules of nodes, in-place writes and cuts, in bounded
memory. Nothing that the program computes changes. TORCHGRAPHDBG=0 in the environment (or off, false, no, or nothing)
keeps it off, whatever the program says.

    auto.stop()                     # from here on nothing is recorded, and torch is as it was
    auto.start()                    # again

On a torch that this installation was not built for it warns once, says how to rebuild, and does nothing.
"""
import atexit
import os
import sys

from . import _guard

__all__ = ["start", "stop"]

_failed = False


def start() -> bool:
    """Start recording, unless it is on. Whether it is on now."""
    global _failed
    if _failed or os.environ.get("TORCHGRAPHDBG", "1").strip().lower() in ("0", "off", "false", "no", ""):
        return False
    try:
        _guard.check()
        from . import _core
        _core.auto_start()
    except Exception as error:  # whatever it is, the program goes on as without us
        _failed = True
        _guard.warn(f"torchgraphdbg.auto does nothing: {error}")
        return False
    return True


def stop() -> None:
    """Stop recording, if it is on, and put back what was changed in torch."""
    core = sys.modules.get(f"{__package__}._core")  # not there: nothing was started
    if core is not None:
        core.auto_stop()


if start():
    atexit.register(stop)  # before the interpreter goes: threads may still run ops then
