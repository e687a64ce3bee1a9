"""dump() and Report.save(): what is printed, what is written, and what happens where that fails."""
import errno
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import textwrap
import threading
import types
import xml.etree.ElementTree as ElementTree

import pytest
import torch

import torchgraphdbg
from torchgraphdbg import dump, inspect

SUFFIXES = [".svg", ".html", ".json", ".gv", ".txt"]
needs_posix = pytest.mark.skipif(os.name != "posix", reason="POSIX files")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def report(broken_report):
    return broken_report


# ---- forms ----

def check(path, report):
    data = pathlib.Path(os.fsdecode(path)).read_bytes()
    suffix = os.path.splitext(os.fsdecode(path))[1].lower()
    if suffix == ".svg":
        assert ElementTree.fromstring(data).tag.endswith("svg")
    elif suffix == ".json":
        assert json.loads(data) == report.to_dict()
    elif suffix == ".html":
        assert data.startswith(b"<!DOCTYPE html>") and data.endswith(b"</html>\n")
    elif suffix == ".txt":
        assert data.decode() == str(report)
    else:
        assert data.startswith((b"digraph", b"strict digraph", b"/*", b"//"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_formats(suffix, report, folder):
    for path in (f"a{suffix}", folder / f"b{suffix}", os.fsencode(folder / f"c{suffix}")):
        assert report.save(path) is None
        check(path, report)
    assert sorted(os.listdir(folder)) == [f"a{suffix}", f"b{suffix}", f"c{suffix}"]


@pytest.mark.parametrize("name", ["a b.txt", "a\nb.txt", "-.txt", "%s.txt", "權.txt", "a.svg.txt", "\udcff\udc80.txt",
                                  "x" * 200 + ".txt"])
def test_names_of_files(name, broken, capsys, folder):
    report = dump(broken, name)
    check(name, report)
    assert os.listdir(os.fsencode(folder)) == [os.fsencode(name)]
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("saved to ")
    assert not any(c.isspace() and c != " " for c in last)


def test_bytes_that_are_no_utf8(report):
    report.save(b"\xff\xfe.txt")
    assert os.listdir(b".") == [b"\xff\xfe.txt"]


# ---- dump ----

def test_dump(broken, capsys, folder):
    report = dump(broken)
    assert type(report) is torchgraphdbg.Report
    assert report.findings[0].kind == "modified-in-place"
    assert os.listdir(folder) == ["torchgraphdbg.svg"]
    check("torchgraphdbg.svg", report)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == str(report) + f"saved to {folder / 'torchgraphdbg.svg'}\n"


def test_dump_takes_the_arguments_of_inspect(healthy, mlp):
    report = dump(healthy, None, params=mlp, inputs=[mlp[0].weight], create_graph=True, quiet=True)
    assert report.to_dict() == inspect(healthy, params=mlp, inputs=[mlp[0].weight], create_graph=True).to_dict()


def test_dump_to_no_file(broken, capsys, folder):
    report = dump(broken, None)
    assert os.listdir(folder) == []
    assert capsys.readouterr().err == str(report)


def test_dump_to_several(broken, capsys, folder):
    report = dump(broken, ["a.svg", b"b.json", folder / "c.txt"])
    assert sorted(os.listdir(folder)) == ["a.svg", "b.json", "c.txt"]
    for name in os.listdir(folder):
        check(name, report)
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("saved to ")] == [
        f"saved to {folder / name}" for name in ("a.svg", "b.json", "c.txt")]
    dump(broken, ("d.txt",), quiet=True)
    assert (folder / "d.txt").exists()


def test_quiet(broken, capsys, folder):
    dump(broken, quiet=True)
    assert capsys.readouterr() == ("", "")
    assert os.listdir(folder) == ["torchgraphdbg.svg"]


def test_file(broken, capsys):
    stream = io.StringIO()
    report = dump(broken, "a.txt", file=stream)
    assert stream.getvalue().startswith(str(report))
    assert capsys.readouterr() == ("", "")
    stream = io.StringIO()
    dump(broken, None, file=stream, quiet=True)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("file", [3, "report.txt", object(), types.SimpleNamespace(write=None)])
def test_wrong_file(file, broken, folder):
    with pytest.raises(TypeError, match="^file: expected an object with a write method, got "):
        dump(broken, file=file)
    assert os.listdir(folder) == []


def test_stderr_of_the_moment(broken, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    report = dump(broken, None)
    assert stream.getvalue() == str(report)


def test_no_stderr(broken, monkeypatch, folder):
    monkeypatch.setattr(sys, "stderr", None)
    dump(broken)
    assert (folder / "torchgraphdbg.svg").exists()
    monkeypatch.delattr(sys, "stderr")
    dump(broken, "a.txt")
    assert (folder / "a.txt").exists()


@pytest.mark.parametrize("error", [OSError(errno.EPIPE, "broken"), ValueError("I/O operation on closed file.")])
def test_broken_stderr_does_not_cost_the_picture(error, broken, monkeypatch, folder):
    class Broken:
        def write(self, text):
            raise error

    monkeypatch.setattr(sys, "stderr", Broken())
    dump(broken)
    assert (folder / "torchgraphdbg.svg").exists()
    with pytest.raises(type(error)):
        dump(broken, file=Broken())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
def test_stream_that_cannot_show_every_character(encoding):
    weight = torch.nn.Parameter(torch.ones(3))
    params = {"權重-é": torch.nn.Parameter(torch.ones(2)), "a\udc80": torch.nn.Parameter(torch.ones(2))}
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    dump(weight.sum(), "權.txt", params=params, file=stream)
    stream.flush()
    text = raw.getvalue().decode(encoding)
    assert ("權重" in text) == (encoding == "utf-8")
    assert ("\\u6b0a\\u91cd" in text) == (encoding != "utf-8")
    assert text.splitlines()[-1].startswith("saved to ")


def test_stream_without_an_encoding():
    class Stream:
        def __init__(self):
            self.text = ""

        def write(self, text):
            text.encode("ascii")
            self.text += text

    stream = Stream()
    dump(torch.ones(2, requires_grad=True).sum(), None, params={"權": torch.nn.Parameter(torch.ones(2))}, file=stream)
    assert "\\u6b0a" in stream.text


def test_rank_in_the_default_name(broken, capsys, folder, monkeypatch):
    def fake(**answers):
        module = types.ModuleType("torch.distributed")
        for name, answer in answers.items():
            setattr(module, name, answer)
        monkeypatch.setitem(sys.modules, "torch.distributed", module)
        dump(broken, quiet=True)
        name, = os.listdir(folder)
        os.unlink(name)
        return name

    def yes():
        return True

    def no():
        return False

    def fail():
        raise RuntimeError("no rank")

    assert fake(is_available=yes, is_initialized=yes, get_rank=lambda: 3) == "torchgraphdbg.rank3.svg"
    assert fake(is_available=yes, is_initialized=no, get_rank=fail) == "torchgraphdbg.svg"
    assert fake(is_available=no) == "torchgraphdbg.svg"
    assert fake(is_available=yes, is_initialized=yes, get_rank=fail) == "torchgraphdbg.svg"
    assert fake() == "torchgraphdbg.svg"
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    dump(broken, quiet=True)
    assert os.listdir(folder) == ["torchgraphdbg.svg"]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_rank_of_a_process_group(broken, folder):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        dump(broken, quiet=True)
        dump(broken, "mine.txt", quiet=True)
    finally:
        torch.distributed.destroy_process_group()
    assert sorted(os.listdir(folder)) == ["mine.txt", "torchgraphdbg.rank0.svg"]


def test_dump_changes_nothing(healthy, mlp):
    version = mlp[0].weight._version
    dump(healthy, quiet=True, params=mlp)
    assert all(p.grad is None for p in mlp.parameters())
    assert mlp[0].weight._version == version
    healthy.backward()
    assert all(p.grad is not None for p in mlp.parameters())


# ---- refusals ----

@pytest.mark.parametrize("path", ["graph", "graph.pdf", "graph.", ".svg.", "svg", "", "folder.svg/graph", "graph.svgz"])
def test_unknown_suffix(path, broken, report, capsys, folder):
    for call in (lambda: dump(broken, path), lambda: dump(broken, ["good.svg", path]), lambda: report.save(path),
                 lambda: dump(broken, os.fsencode(path)), lambda: dump(broken, pathlib.PurePosixPath(path))):
        with pytest.raises(ValueError, match=r"^path: ") as raised:
            call()
        assert all(suffix in str(raised.value) for suffix in SUFFIXES)
    assert capsys.readouterr() == ("", "")
    assert os.listdir(folder) == []


@pytest.mark.parametrize("path", [3, 2.5, object(), {"a.svg"}, ["a.svg", None], [["a.svg"]]])
def test_wrong_path(path, broken, capsys, folder):
    with pytest.raises(TypeError, match="^path: expected a str, bytes or os.PathLike, got "):
        dump(broken, path)
    assert capsys.readouterr() == ("", "")
    assert os.listdir(folder) == []


@pytest.mark.parametrize("path", [None, 3, ["a.svg"], ("a.svg",)])
def test_save_takes_one_path(path, report):
    with pytest.raises(TypeError, match="^path: expected a str, bytes or os.PathLike, got "):
        report.save(path)


def test_save_refuses_what_it_does_not_know(report):
    for options in ({"details": "all"}, {"focused": None}, {"format": "svg"}):
        with pytest.raises(TypeError):
            report.save("a.svg", **options)
    with pytest.raises(TypeError):
        report.save()
    report.save(path="a.svg")


def test_nul_in_a_path(report, broken):
    for path in ("a\0b.svg", b"a\0b.svg"):
        with pytest.raises(ValueError, match="^path: .* NUL"):
            report.save(path)
        with pytest.raises(ValueError, match="^path: .* NUL"):
            dump(broken, path)


def test_surrogate_that_no_path_can_hold(report):
    with pytest.raises(ValueError, match="^path: .* cannot be encoded"):
        report.save("\ud800.svg")


def test_path_object_that_fails(report):
    class Failing:
        def __fspath__(self):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        report.save(Failing())


def test_bad_arguments_print_and_write_nothing(capsys, folder):
    for root in (None, 3, []):
        with pytest.raises((TypeError, ValueError), match="^root"):
            dump(root)
    assert capsys.readouterr() == ("", "")
    assert os.listdir(folder) == []


# ---- failing files ----

def refused(report, path, number, kind=OSError):
    with pytest.raises(kind) as raised:
        report.save(path)
    assert raised.value.errno == number
    assert raised.value.filename == path
    return raised.value


@needs_posix
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_failing_files(suffix, report, folder):
    refused(report, f"no/such/folder{suffix}", errno.ENOENT, FileNotFoundError)
    (folder / f"folder{suffix}").mkdir()
    refused(report, f"folder{suffix}", errno.EISDIR, IsADirectoryError)
    (folder / "plain").write_text("x")
    refused(report, f"plain/graph{suffix}", errno.ENOTDIR, NotADirectoryError)
    refused(report, "x" * 300 + suffix, errno.ENAMETOOLONG)
    os.symlink(f"loop{suffix}", f"loop{suffix}")
    refused(report, os.fsencode(folder / f"loop{suffix}" / f"a{suffix}"), errno.ELOOP)
    assert not [name for name in os.listdir(folder) if name not in ("plain", f"folder{suffix}", f"loop{suffix}")]


def test_report_is_printed_before_saving_fails(broken, capsys):
    with pytest.raises(FileNotFoundError):
        dump(broken, ["good.txt", "no/such/folder.svg", "never.txt"])
    assert "saved to" in capsys.readouterr().err
    assert os.listdir() == ["good.txt"]
    with pytest.raises(FileNotFoundError):
        dump(broken, "no/such/folder.svg")
    assert inspect(broken).verdict in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_full_disk(suffix, report, folder):
    os.symlink("/dev/full", f"full{suffix}")
    refused(report, f"full{suffix}", errno.ENOSPC)
    assert os.listdir(folder) == [f"full{suffix}"]
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_file_to_print_to(broken, folder):
    with open("/dev/full", "w", buffering=1) as file:
        with pytest.raises(OSError):
            dump(broken, file=file)
            file.flush()
        try:
            file.close()
        except OSError:
            pass


@needs_posix
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_pipe(suffix, report, folder):
    os.mkfifo(f"pipe{suffix}")
    received = []
    reader = threading.Thread(target=lambda: received.append(pathlib.Path(f"pipe{suffix}").read_bytes()))
    reader.start()
    report.save(f"pipe{suffix}")
    reader.join()
    assert stat.S_ISFIFO(os.stat(f"pipe{suffix}").st_mode)
    (folder / f"copy{suffix}").write_bytes(received[0])
    check(f"copy{suffix}", report)


@needs_posix
def test_symbolic_link_and_mode_stay(report, folder):
    target = folder / "target.txt"
    target.write_text("old")
    target.chmod(0o640)
    os.symlink("target.txt", "link.txt")
    report.save("link.txt")
    assert target.read_text() == str(report)
    assert os.path.islink("link.txt")


@needs_posix
def test_new_files_follow_the_umask(report):
    old = os.umask(0o027)
    try:
        report.save("a.txt")
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat("a.txt").st_mode) == 0o640


@needs_posix
def test_folder_that_must_not_be_written(folder):
    """In a child that is not root: the old file stays, the error names errno and file, nothing is left behind."""
    script = textwrap.dedent("""
        import os, sys, errno
        import torch, torchgraphdbg
        folder = sys.argv[1]
        os.chdir(folder)
        open("old.txt", "w").write("old")
        report = torchgraphdbg.inspect(torch.ones(2, requires_grad=True).sum())
        os.chmod(folder, 0o555)
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        for name in ("new.txt", "new.svg", "old.txt"):
            try:
                report.save(name)
            except PermissionError as e:
                assert e.errno == errno.EACCES and e.filename == name, e
            else:
                raise AssertionError(name)
        assert os.listdir(".") == ["old.txt"]
        assert open("old.txt").read() == "old"
    """)
    place = folder / "closed"
    place.mkdir()
    for parent in place.parents:
        if parent.stat().st_uid == os.geteuid() and parent.stat().st_mode & 0o111 != 0o111:
            parent.chmod(parent.stat().st_mode | 0o111)  # pytest's folders are for their owner alone
    try:
        done = subprocess.run([sys.executable, "-c", script, str(place)], capture_output=True, text=True)
    finally:
        place.chmod(0o755)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failure_leaves_the_old_file(suffix, report, folder):
    """The file's size is limited, so that writing fails half-way."""
    name = f"graph{suffix}"
    (folder / name).write_text("old")
    script = textwrap.dedent("""
        import os, resource, signal, sys
        import torch, torchgraphdbg
        x = torch.ones(2, requires_grad=True)
        for _ in range(3000):
            x = x * 2
        report = torchgraphdbg.inspect(x.sum())
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        try:
            report.save(sys.argv[1])
        except OSError as e:
            assert e.errno == 27 and e.filename == sys.argv[1], e
        else:
            raise AssertionError("saved")
    """)
    done = subprocess.run([sys.executable, "-c", script, name], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / name).read_text() == "old"
    assert os.listdir(folder) == [name]


def test_working_directory_that_is_gone(broken, capsys, folder):
    """The message falls back to the path as given; saving itself fails as the system says."""
    gone = folder / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        with pytest.raises(FileNotFoundError):
            dump(broken)
        dump(broken, folder / "a.txt")
    finally:
        os.chdir(folder)
    assert capsys.readouterr().err.splitlines()[-1] == f"saved to {folder / 'a.txt'}"


def test_many_threads_save_to_one_path(report, folder):
    """Whoever reads meets a whole file at any time."""
    report.save("a.svg")
    expected = (folder / "a.svg").read_bytes()
    stop, torn = threading.Event(), []

    def read():
        while not stop.is_set():
            if (folder / "a.svg").read_bytes() != expected:
                torn.append(1)

    def write():
        for _ in range(10):
            report.save("a.svg")

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write) for _ in range(4)]
    reader.start()
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert not torn
    assert os.listdir(folder) == ["a.svg"]
