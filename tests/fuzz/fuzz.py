#!/usr/bin/env python3
"""Random programs: does what torchgraphdbg predicts happen when the real backward runs?

    python tests/fuzz/fuzz.py --programs 10000 --seed 0 [--jobs 2] [--recorder mix|off|full|light] [-v]

Each program builds a graph, and often breaks it. inspect() says which node will raise, with which numbers; then
torch.autograd.backward runs, and a hook on every node tells where it really was. The order of the nodes that ran, the
shape of the graph, every saved tensor and the set of all broken nodes are compared as well. A "may" (a warning: a
custom Function or a hook decides) counts neither as alarm nor as miss. Exit status 0: no disagreement.

With a recorder on, the op and line of each culprit, and each node's line, must be those of the statement that did it
(attribution.py). Programs share one recording, and drop and make tensors of the same size all the time, so that rows
about other tensors bear the addresses of those that are judged.

Replay one program with --seed S --programs 1 -v --recorder R; what needs its predecessors, with those of its chunk.
"""

import argparse
import collections
import gc
import os
import pathlib
import pickle
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

CHUNK = 50  # programs per child process
IN_ONE = 25  # programs per record()
LEVELS = ("full", "light", "off")
TIMEOUT = 120  # seconds for a chunk


class Dead:
    """What a child had said about a program before it died in it."""

    def __init__(self, seed):
        self.seed, self.seen = seed, {}


class Recorder:
    """The recorder of a child process: none, record() anew for every few programs, or the light recording."""

    def __init__(self, level):
        self.level, self.programs, self.record = level, 0, None
        if level == "light":
            import torchgraphdbg.auto

            assert torchgraphdbg.auto.start(), "TORCHGRAPHDBG=0 is in the environment"

    def next_program(self):
        if self.level == "full" and self.programs % IN_ONE == 0:
            import torchgraphdbg

            if self.record is not None:
                self.record.__exit__(None, None, None)
            self.record = torchgraphdbg.record(timeline=False, statistics=False)
            self.record.__enter__()
        self.programs += 1


def examine(seed, say, level):
    """(verdict, detail, text, what was named) of one program."""
    import judge
    from program import Program

    program = Program(seed)
    program.level = level
    if not program.action:
        return "no graph", "", "", {}
    text = program.text()
    say("text", text)
    try:
        verdict, detail = judge.judge(program, say, level != "off")
    except judge.Disagreement as found:
        verdict, detail = found.verdict, found.detail
    return verdict, detail + "".join(f"\nno line: {told}" for told in program.unnamed), text, program.attributed


def child(seeds, stream, level):
    recorder = Recorder(level)
    for seed in seeds:
        recorder.next_program()

        def say(key, value, seed=seed):
            stream.write(pickle.dumps((seed, key, value)))

        say("begin", None)
        try:
            say("result", examine(seed, say, level))
        except Exception as error:  # a fault of the fuzzer, to be seen and mended
            import traceback

            say("result", ("fuzzer failed", traceback.format_exc(), f"{type(error).__name__}", {}))
        if seed % 50 == 0:
            gc.collect()


def level_of(seed, wanted):
    return LEVELS[seed // CHUNK % len(LEVELS)] if wanted == "mix" else wanted


def chunks(seeds):
    """Programs of one process, which are the same ones whatever the number of jobs. Those that may end the process go
    into one of their own."""
    from program import Program

    plain = []
    for seed in seeds:
        if plain and seed // CHUNK != plain[0] // CHUNK:
            yield plain
            plain = []
        if Program.start(seed)[1] == "storage":
            yield [seed]
        else:
            plain.append(seed)
    if plain:
        yield plain


def in_child(seeds, level):
    """Yield (seed, result or Dead) for each program; a child that dies takes only its own program along."""
    while seeds:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            signal.alarm(TIMEOUT)
            status = 1
            try:
                child(seeds, os.fdopen(write, "wb", buffering=0), level)
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        dead = None
        with os.fdopen(read, "rb") as stream:
            while True:
                try:
                    seed, key, value = pickle.load(stream)
                except (EOFError, pickle.UnpicklingError):
                    break
                if key == "begin":
                    dead = Dead(seed)
                elif key == "result":
                    dead = None
                    yield seed, value
                else:
                    dead.seen[key] = value
        _, status = os.waitpid(pid, 0)
        if dead is None:
            return
        dead.seen["signal"] = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        yield dead.seed, dead
        seeds = seeds[seeds.index(dead.seed) + 1 :]


def verdict_of(dead):
    """A process that died: in the forward, in inspect, or in a backward that was said to be dangerous."""
    seen = dead.seen
    text = seen.get("text", "")
    how = f"signal {seen['signal']}"
    if "text" not in seen:
        return "the forward died", how, text
    if not seen.get("predicted"):
        return "process died", f"{how}, in inspect or in a backward that no storage was taken from", text
    findings = seen["predicted"][0]["findings"]
    feared = [f for f in findings if f["kind"] in ("storage-freed", "storage-changed")]
    here = [f for f in feared if f["node"] == seen.get("at")]
    if here:
        return "storage: died as " + ("said" if here[0]["severity"] == "error" else "feared"), how, text
    return "storage: died, not foretold", f"{how} at node {seen.get('at')}; said {feared}", text


def shard(seeds, wanted, emit):
    for group in chunks(seeds):
        level = level_of(group[0], wanted)
        for seed, result in in_child(group, level):
            emit(seed, level, (*verdict_of(result), {}) if isinstance(result, Dead) else result)


def run(seeds, jobs, wanted, emit):
    if jobs == 1:
        return shard(seeds, wanted, emit)
    streams, pids, lock = [], [], threading.Lock()
    for j in range(jobs):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            status = 1
            try:
                with os.fdopen(write, "wb", buffering=0) as stream:
                    mine = [seed for seed in seeds if seed // CHUNK % jobs == j]
                    shard(mine, wanted, lambda *told: stream.write(pickle.dumps(told)))
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        streams.append(os.fdopen(read, "rb"))
        pids.append(pid)

    def relay(stream):
        with stream:
            while True:
                try:
                    told = pickle.load(stream)
                except (EOFError, pickle.UnpicklingError):
                    return
                with lock:
                    emit(*told)

    readers = [threading.Thread(target=relay, args=(stream,)) for stream in streams]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    for pid in pids:
        os.waitpid(pid, 0)
    return None


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the next ones count up")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--recorder", choices=("mix", *LEVELS), default="mix", help="mix: each in turn, by chunks")
    parser.add_argument("--show", type=int, default=5, help="print at most this many failing programs of each verdict")
    parser.add_argument("-v", action="store_true", help="print every program with its verdict")
    args = parser.parse_args(arguments)

    import torch  # once, before forking
    import torch._dynamo  # noqa: F401
    import torch.utils.checkpoint  # noqa: F401
    import judge
    import torchgraphdbg.auto  # the recording itself is for the children

    torchgraphdbg.auto.stop()
    torch.set_num_threads(1)
    verdicts, examples, started = collections.Counter(), collections.defaultdict(list), time.monotonic()
    bad = judge.FAILURES + ("fuzzer failed",)

    named = collections.defaultdict(collections.Counter)

    def emit(seed, level, result):
        verdict, detail, text, attributed = result
        named[level].update(attributed)
        verdicts[verdict] += 1
        if args.v:
            print(f"==== program {seed} ({level}): {verdict}\n{text}\n---- {detail}", flush=True)
        elif verdict in bad and verdicts[verdict] <= args.show:
            print(
                f"==== program {seed} ({level}): {verdict}\n{text}\n---- {detail}\n"
                f"---- replay: --seed {seed} --programs 1 --recorder {level} -v, or from --seed {seed // CHUNK * CHUNK}\n",
                flush=True,
            )
        if len(examples[verdict]) < 6:
            examples[verdict].append(seed)

    run(list(range(args.seed, args.seed + args.programs)), args.jobs, args.recorder, emit)
    total = sum(verdicts.values())
    failed = sum(verdicts[v] for v in bad) + (total != args.programs)
    print(f"{total} programs in {time.monotonic() - started:.0f} s")
    for verdict, count in verdicts.most_common():
        seeds = ", ".join(map(str, examples[verdict]))
        print(f"{'FAIL' if verdict in bad else '    '} {count:6d}  {verdict:42s} e.g. {seeds}")
    exact, feared, missed = verdicts["exact"], verdicts["may, raised"], verdicts["miss"]
    print(f"raised: {exact} of {exact + feared + missed} exactly as predicted, {feared} as feared by a warning")
    print(f"warnings that came to nothing: {verdicts['may, passed']}")
    print(f"false alarms: {verdicts['false alarm']}, misses: {missed}, other disagreements: "
          f"{failed - verdicts['false alarm'] - missed}")
    for level, counts in sorted(named.items()):
        if counts:
            print(f"{level}: " + ", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
