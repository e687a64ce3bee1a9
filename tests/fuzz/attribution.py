"""Are the ops and lines that a recorder's report names those of the statements that really did it?"""

import collections
import itertools
import linecache
import re

import torch

import functions
import judge
import replay
import torchgraphdbg

WRITERS = re.compile(r"(?:; |, then )by (\w+) at (\S+):(\d+)")
STRUCK = ("modified-in-place", "graph-freed", "detached-in-place", "storage-freed", "storage-changed")


def main_thread(cached=[]):
    """The number torch gives this thread, as reports show it."""
    if not cached:
        root = torch.ones(1, requires_grad=True) * 1
        cached.append(torchgraphdbg.inspect(root).to_dict()["nodes"][0]["thread"])
    return cached[0]


def statement_at(program, stack):
    """Number of the program's statement that a stack leads to; None: none of it is this program's."""
    return next((place.line for place in stack if place.file == program.file), None)


def wrong(what, program, told):
    raise judge.Disagreement(what, told)


class Lines:
    """Judges one report. counts: what was named, and what was not."""

    def __init__(self, program, report):
        self.program, self.report = program, report
        self.counts = collections.Counter()
        self.plain = report.to_dict()
        self.again = None

    def text_of(self, statement):
        return self.program.lines[statement - 1][0]

    # ---- nodes ----

    def check_nodes(self):
        """Each node's line is the statement during which its thread's count passed its number."""
        for node, plain in zip(self.report.graph.nodes, self.plain["nodes"]):
            if node.sequence_nr is None or plain["thread"] != main_thread():
                continue
            statement = self.program.statement_of(node.sequence_nr)
            if statement is None:
                continue  # a view's node that was made anew as somebody asked for it
            if node.where is None:
                self.counts["node without line"] += 1
                continue
            named = statement_at(self.program, node.stack)
            again = "grad(" in self.text_of(statement) or "backward(" in self.text_of(statement)
            if named == statement or (again and named is not None and named < statement):
                self.counts["node"] += 1
                continue
            wrong(
                "wrong line of a node",
                self.program,
                f"{node} ({node.sequence_nr}): {node.where}, statement {named}, made by statement {statement}",
            )

    # ---- findings ----

    def saved_of(self, finding):
        """What plain PyTorch saw of the saved tensor; None where Python does not reach it."""
        function = self.pairs.get(finding.node.index)
        name = "saved_tensors" if finding.saved == "saved_tensors" else f"_saved_{finding.saved}"
        return self.again.saved.get((function, name))

    def check_findings(self):
        wanted = [
            (f, p)
            for f, p in zip(self.report.findings, self.plain["findings"])
            if f.node is not None and (f.kind in STRUCK or f.kind == "silently-modified")
        ]
        if not wanted:
            return
        self.again = replay.Replay(self.program)
        roots = [self.again.env[name] for name in self.program.roots]
        try:
            self.pairs = judge.align(self.report, roots, numbers=False)
        except judge.Disagreement:
            self.counts["not judged: runs differently the second time"] += 1
            return
        for finding, plain in wanted:
            if not plain["culprit"]:
                if finding.saved is None:
                    self.counts["of a leaf's shape, which no writer is looked for"] += 1
                    continue
                self.counts[f"{finding.kind} without line"] += 1
                self.counts["without line"] += 1
                self.explain_missing(finding)
                continue
            self.check(finding)

    def explain_missing(self, finding):
        """Failures where a line was due."""
        saved = self.saved_of(finding)
        if finding.kind in ("storage-changed", "storage-freed") and saved is not None:
            self.program.unnamed.append(f"{finding.message}: statement {saved.resized}")
        if finding.kind == "modified-in-place" and saved is not None and saved.bumps and not saved.many:
            text = self.text_of(saved.bumps[0][0])
            if self.program.level == "light" and "in_thread" in text:
                self.counts["  of these in a new thread"] += 1
            else:
                self.counts["  of these one is known"] += 1
                self.program.unnamed.append(f"{finding.message}: statement {saved.bumps[0][0]}: {text}")

    def check(self, finding):
        kind, program = finding.kind, self.program
        named = statement_at(program, finding.stack)
        told = f"{finding.message}\nstatement {named}: {'' if named is None else self.text_of(named)}"
        if named is None:
            wrong("wrong line", program, f"{told}\nno line of this program, but {finding.where}")
        text, saved = self.text_of(named), self.saved_of(finding)
        if text.startswith("s = "):
            wrong("wrong line", program, f"{told}\nwhich writes to nothing that any node keeps")
        if kind == "modified-in-place":
            self.check_write(finding, named, text, saved, told)
        elif kind == "graph-freed":
            if saved is not None and saved.freed is not None and saved.freed != named:
                wrong("wrong line", program, f"{told}\nit was freed by statement {saved.freed}")
            if "backward(" not in text and "grad(" not in text:
                wrong("wrong line", program, told)
        elif kind == "detached-in-place":
            if "detach_()" not in text or finding.op != "detach_":
                wrong("wrong line", program, told)
        elif kind == "silently-modified":
            hooked = any(s.has_hooks for s in finding.node.saved)  # which decide what Python gets to see
            if saved is not None and saved.silent and named not in saved.silent and not hooked:
                wrong("wrong line", program, f"{told}\nits bytes changed in statements {saved.silent}")
        elif saved is not None and saved.resized is not None and saved.resized != named:
            wrong("wrong line", program, f"{told}\nits storage changed in statement {saved.resized}")
        self.counts[f"{kind} named"] += 1
        self.counts["named"] += 1

    def check_write(self, finding, named, text, saved, told):
        program = self.program
        known = replay.writers_in(text)
        if known is not None and finding.op not in known:
            wrong("wrong op", program, f"{told}\nop {finding.op}, where the statement writes by {sorted(known)}")
        if known is None and not finding.op.endswith("_"):
            wrong("wrong op", program, f"{told}\nop {finding.op}")
        if finding.where.file == functions.__file__ and finding.op not in linecache.getline(
            functions.__file__, finding.where.line
        ):
            wrong("wrong line", program, f"{told}\n{finding.where} does not say {finding.op}")
        if saved is None or not saved.bumps or saved.many:
            self.counts["modified-in-place named, where Python does not tell"] += 1
            return
        bumps = [k for k, _ in saved.bumps]
        unseen = program.level == "light" and "in_thread" in self.text_of(bumps[0]) and named in bumps
        if unseen:  # a thread that the light level does not know yet
            self.counts["the first write, in a new thread, left out"] += 1
            return
        if named != bumps[0]:
            wrong("wrong line", program, f"{told}\nits version was moved by statements {saved.bumps}")
        self.counts["modified-in-place judged"] += 1
        self.check_all_writes(finding, bumps, told)

    def check_all_writes(self, finding, bumps, told):
        """The message names the statements in their order; it may stop after a few."""
        places = WRITERS.findall(finding.message)
        if any(file != self.program.file.rpartition("/")[2] for _, file, _ in places):
            return  # a helper's line
        said = [k for k, _ in itertools.groupby(int(line) for _, _, line in places)]
        told = f"{told}\nsaid {said}, its version was moved by statements {bumps}"
        for op, _, k in places:
            known = replay.writers_in(self.text_of(int(k)))
            if known is not None and op not in known:
                wrong("wrong op", self.program, f"{told}\nop {op} of statement {k}")
        if said != bumps[: len(said)]:
            left = iter(bumps)
            if not all(k in left for k in said):
                wrong("wrong line", self.program, told)
            self.counts["a write after the first left out"] += 1
        elif len(said) < len(bumps) and not finding.message.endswith(", then by others"):
            self.counts["a write after the first left out"] += 1
        else:
            self.counts["all writes, in order"] += 1


def check(program, report):
    """Counter of what was named. Raises judge.Disagreement where something else did it."""
    lines = Lines(program, report)
    if any("_set_sequence_nr" in line for line, _ in program.lines):
        program.attributed["program not judged: its nodes bear numbers of others"] += 1
        return
    try:
        lines.check_nodes()
        lines.check_findings()
    finally:
        program.attributed.update(lines.counts)
