"""python -m torchgraphdbg show: a dump printed, or saved in other forms."""
import os
import sys


def show(file: str, outputs: list[str], *, every: bool) -> int:
    """Exit status: 0, or 1 with a line on stderr that says what could not be done."""
    try:
        from torchgraphdbg import load
        report = load(file)
        for output in outputs:
            report.save(output)
        if not outputs:
            print(report, end="")
        if every:
            for number, finding in enumerate(report.findings, 1):
                where = f" ({finding.where})" if finding.where is not None else ""
                print(f"\n[{number} of {len(report.findings)}]{where} {finding}")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read has seen enough
        return 1
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        print(f"torchgraphdbg show: {error}", file=sys.stderr)
        return 1
    return 0
