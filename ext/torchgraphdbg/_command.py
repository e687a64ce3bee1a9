"""The command line: python -m torchgraphdbg run|show|diff."""
import argparse
import sys

from . import _run, _show

PROGRAM = "python -m torchgraphdbg"

RUN = """\
Run a script as Python would, and record what it does: lines and modules of nodes, in-place writes, cuts. A
torchgraphdbg.dump(loss) in it then names lines. When backward raises, or PyTorch refuses an in-place op, the
exception says why in a note, and a dump is written to DIR. The script sees nothing of it, and its exit status is
the command's. Options of the interpreter stand before -m: python -O -m torchgraphdbg run train.py"""

SHOW = """\
Print the report that a .json file holds, or save it in other forms. Exit status: 0, or 1 where a file could not be
read or written, and 2 for a wrong command line."""

DIFF = """\
Say what changed from one report to another: nodes, times, gradients and findings. Exit status: 0; 1 where a file
could not be read; 2 for a wrong command line; 3 where --fail-slower or --fail-on-findings says that it has failed."""


def percentage(text: str) -> float:
    """The share that "10%" or "10" says."""
    value = float(text.removesuffix("%")) / 100
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


def parser() -> argparse.ArgumentParser:
    """The command line but for what `run` runs, which _run.split() takes off."""
    top = argparse.ArgumentParser(PROGRAM, description="Shows what PyTorch's backward meets, and who did it.")
    commands = top.add_subparsers(title="commands", dest="command", metavar="COMMAND")

    run = commands.add_parser("run", help="run a script with the recording on", description=RUN,
                              usage=f"{PROGRAM} run [-d DIR] (SCRIPT | -m MODULE) [ARGUMENT ...]",
                              formatter_class=argparse.RawDescriptionHelpFormatter)
    run.add_argument("-d", "--directory", metavar="DIR", default="torchgraphdbg",
                     help="where dumps are written (default: %(default)s); made when the first one is")
    run.add_argument("-m", dest="module", metavar="MODULE", help="run a module, as python -m does")
    run.add_argument("script", metavar="SCRIPT", nargs="?",
                     help="a script, or a directory or zip file with a __main__.py; what follows is its own")
    run.set_defaults(fail=run.error)

    show = commands.add_parser("show", help="print a dump, or save it in other forms", description=SHOW,
                               usage=f"{PROGRAM} show FILE.json [-o OUT ...] [--all]",
                               formatter_class=argparse.RawDescriptionHelpFormatter)
    show.add_argument("file", metavar="FILE.json", help="a report that was saved as .json")
    show.add_argument("-o", "--output", metavar="OUT", nargs="+", action="extend", default=[],
                      help="save to these files instead of printing; the suffix picks the form: .svg, .html, .json, .gv or .txt")
    show.add_argument("--all", action="store_true",
                      help="print every finding by itself, also what the report sums up or leaves out")

    diff = commands.add_parser("diff", help="say what changed between two dumps", description=DIFF,
                               usage=f"{PROGRAM} diff BEFORE.json AFTER.json [--fail-slower PERCENT] "
                                     "[--fail-on-findings]",
                               formatter_class=argparse.RawDescriptionHelpFormatter)
    diff.add_argument("before", metavar="BEFORE.json", help="a report that was saved as .json")
    diff.add_argument("after", metavar="AFTER.json", help="the same of a later run")
    diff.add_argument("--fail-slower", metavar="PERCENT", type=percentage,
                      help="exit with 3 where backward takes longer by more than this, such as 10%%")
    diff.add_argument("--fail-on-findings", action="store_true",
                      help="exit with 3 where there is an error or a warning that was not there before")
    return top


def main() -> None:
    """Runs the command that sys.argv holds. Returns when it went well; `run` passes on what the script raised."""
    mine, target = _run.split(sys.argv[1:])
    top = parser()
    options = top.parse_args(mine)
    if options.command == "run":
        if not (options.module or options.script):
            options.fail("expected a script, or -m and a module")
        _run.run(options.module or options.script, target, as_module=bool(options.module), directory=options.directory)
    elif options.command == "show":
        status = _show.show(options.file, options.output, every=options.all)
        if status != 0:
            sys.exit(status)
    elif options.command == "diff":
        from . import _diff  # `run` has no use for it, and the script would find what it imports
        status = _diff.diff(options.before, options.after, fail_slower=options.fail_slower,
                            fail_on_findings=options.fail_on_findings)
        if status != 0:
            sys.exit(status)
    else:
        top.print_help()
