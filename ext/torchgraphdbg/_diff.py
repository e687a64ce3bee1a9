"""What changed from one report to another: Report.diff() and python -m torchgraphdbg diff."""
import difflib
import sys
from dataclasses import dataclass
from typing import Any

LEAST_SHARE = 0.01  # of a backward: what took less in both is not worth a line
LEAST_CHANGE = 0.10  # of a time, before it counts as slower or faster
MOST_LINES = 12  # of a section of the text


@dataclass(frozen=True)
class NodeChange:
    """A node that both reports have. Times are seconds, medians over what each recorder saw; None where not timed."""

    before: Any
    after: Any
    time_before: float | None
    time_after: float | None

    @property
    def time_change(self) -> float | None:
        """Seconds it takes longer; negative: it got faster."""
        if self.time_before is None or self.time_after is None:
            return None
        return self.time_after - self.time_before

    @property
    def gradients(self) -> dict[str, tuple[Any, Any]]:
        """What is different of its gradient, by name: before and after."""
        old, new = self.before.gradient, self.after.gradient
        if old is None or new is None:
            return {}
        names = ("unchecked", "numel", "nan", "inf", "zeros", "underflowed", "norm", "rms", "mean", "absmax")
        pairs = {name: (getattr(old, name), getattr(new, name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _place(node) -> tuple[str, str, str]:
    """Nodes of two runs are the same where they have this in common, in the same order."""
    where = "" if node.where is None else f"{node.where.file.rsplit('/', 1)[-1]}:{node.where.line}"
    return node.module or node.parameter or "", node.name, where


def _phrase(node) -> str:
    module, name, where = _place(node)
    return name + (f" {module}" if module else "") + (f" ({where})" if where else "")


def _finding_key(finding) -> tuple:
    node = None if finding.node is None else _place(finding.node)
    return finding.kind, finding.severity, finding.parameter, finding.saved, node


def _match(old: list, new: list) -> tuple[list, list, list]:
    """Pairs, removed, inserted: in the order in which backward runs them. First what is wholly the same, then, in the
    stretches between, what differs in its line alone: the source may have moved."""
    pairs: list[tuple] = []
    removed: list = []
    inserted: list = []
    whole = difflib.SequenceMatcher(None, [_place(node) for node in old], [_place(node) for node in new], autojunk=False)
    for kind, a, b, c, d in whole.get_opcodes():
        if kind == "equal":
            pairs += zip(old[a:b], new[c:d])
            continue
        rest = difflib.SequenceMatcher(None, [_place(node)[:2] for node in old[a:b]],
                                       [_place(node)[:2] for node in new[c:d]], autojunk=False)
        for inner, i, j, k, m in rest.get_opcodes():
            if inner == "equal":
                pairs += zip(old[a + i:a + j], new[c + k:c + m])
            else:
                removed += old[a + i:a + j]
                inserted += new[c + k:c + m]
    return pairs, removed, inserted


def _ordered(report) -> list:
    nodes = list(report.graph.nodes)
    return sorted(nodes, key=lambda node: (node.order is None, node.order or 0, node.index))


def _seconds(report) -> float | None:
    """What backward took without what measuring took: the medians of its nodes, so that one slow step counts little."""
    if report.timeline is None:
        return None
    return sum(span.median for span in report.timeline)


class Difference:
    """What changed from one report to another. str() of it is the text."""

    def __init__(self, before, after):
        self.before, self.after = before, after
        pairs, self.removed, self.inserted = _match(_ordered(before), _ordered(after))
        self.nodes = [NodeChange(old, new, None if old.time is None else old.time.median,
                                 None if new.time is None else new.time.median) for old, new in pairs]
        old, new = {}, {}
        for kept, report in ((old, before), (new, after)):
            for finding in report.findings:
                kept.setdefault(_finding_key(finding), []).append(finding)
        self.new_findings = [each for key, found in new.items() for each in found[len(old.get(key, ())):]]
        self.gone_findings = [each for key, found in old.items() for each in found[len(new.get(key, ())):]]
        self.time_before, self.time_after = _seconds(before), _seconds(after)

    @property
    def slower(self) -> float | None:
        """How much longer backward takes, as a share of what it took: 0.1 is 10 %. None where not both were timed."""
        if not self.time_before or self.time_after is None:
            return None
        return self.time_after / self.time_before - 1

    @property
    def slower_nodes(self) -> list[NodeChange]:
        """Nodes that take at least a tenth longer and matter, those that cost most first."""
        return self._changed(+1)

    @property
    def faster_nodes(self) -> list[NodeChange]:
        """The same of those that got faster."""
        return self._changed(-1)

    def _changed(self, sign: int) -> list[NodeChange]:
        least = LEAST_SHARE * max(self.time_before or 0, self.time_after or 0)
        changed = [node for node in self.nodes if node.time_change is not None and
                   sign * node.time_change > LEAST_CHANGE * min(node.time_before, node.time_after) and
                   max(node.time_before, node.time_after) >= least]
        return sorted(changed, key=lambda node: -sign * node.time_change)

    @property
    def same(self) -> bool:
        """The same nodes with the same findings, and no gradient that is other. Times are not looked at."""
        return not (self.removed or self.inserted or self.new_findings or self.gone_findings or
                    any(node.gradients for node in self.nodes))

    def __repr__(self) -> str:
        return (f"<torchgraphdbg.Difference: {len(self.inserted)} nodes more, {len(self.removed)} fewer, "
                f"{len(self.new_findings)} findings more, {len(self.gone_findings)} fewer>")

    def __str__(self) -> str:
        lines = [*self._findings_text(), *self._structure_text(), *self._times_text(), *self._gradients_text()]
        return "\n".join(lines or ["nothing changed"]) + "\n"

    def _findings_text(self):
        lines = []
        if self.before.verdict != self.after.verdict:
            lines += [f"Before: {self.before.verdict}", f"After:  {self.after.verdict}"]
        for what, findings in (("new", self.new_findings), ("gone", self.gone_findings)):
            lines += _section(f"Findings that are {what}:", [f"{each.severity} {each.kind}: {each.message}"
                                                             for each in findings])
        return lines

    def _structure_text(self):
        return (_section("Nodes that are new:", [_phrase(node) for node in self.inserted]) +
                _section("Nodes that are gone:", [_phrase(node) for node in self.removed]))

    def _times_text(self):
        if self.slower is None:
            return []
        lines = [f"Backward: {_duration(self.time_before)} before, {_duration(self.time_after)} after "
                 f"({self.slower:+.0%})"]
        for what, nodes in (("slower", self.slower_nodes), ("faster", self.faster_nodes)):
            lines += _section(f"Nodes that are {what}:", [
                f"{_duration(node.time_before)} -> {_duration(node.time_after)}  {_phrase(node.after)}"
                for node in nodes])
        return lines

    def _gradients_text(self):
        lines = []
        for node in self.nodes:
            changed = node.gradients
            for name in ("unchecked", "nan", "inf", "zeros", "norm"):
                if name in changed and (name != "norm" or _moved(*changed[name])):
                    old, new = (_number(value) for value in changed[name])
                    lines.append(f"{name} {old} -> {new}  {_phrase(node.after)}")
                    break
        return _section("Gradients that changed:", lines)


def _moved(old, new) -> bool:
    """By more than a tenth: below that two runs with other random numbers look alike."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > LEAST_CHANGE * max(abs(old), abs(new))


def _section(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    shown = [f"  {item}" for item in items[:MOST_LINES]]
    left = len(items) - MOST_LINES
    return [title, *shown, *([f"  ... and {left} more"] if left > 0 else [])]


def _number(value) -> str:
    return "None" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    for scale, unit in ((1, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def diff(before: str, after: str, *, fail_slower: float | None, fail_on_findings: bool) -> int:
    """Exit status: 0; 1 with a line on stderr where a file could not be read; 3 where what was asked for has failed."""
    try:
        from torchgraphdbg import load
        difference = load(before).diff(load(after))
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        print(f"torchgraphdbg diff: {error}", file=sys.stderr)
        return 1
    print(difference, end="")
    failed = []
    if fail_slower is not None:
        if difference.slower is None:
            print("torchgraphdbg diff: --fail-slower: expected two reports with times, made by rec.report() of a "
                  "record() after its backward", file=sys.stderr)
            return 1
        if difference.slower > fail_slower:
            failed.append(f"backward is {difference.slower:.0%} slower, more than {fail_slower:.0%}")
    wrong = [finding for finding in difference.new_findings if finding.severity != "note"]
    if fail_on_findings and wrong:
        failed.append(f"{len(wrong)} new finding{'s' if len(wrong) > 1 else ''}")
    for reason in failed:
        print(f"torchgraphdbg diff: {reason}", file=sys.stderr)
    sys.stdout.flush()
    return 3 if failed else 0
