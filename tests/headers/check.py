"""Check that the C++ sources compile against the headers of other torch versions.

    python tests/headers/check.py CACHE_DIR [VERSION...]      (default: 2.6.0 2.9.1 2.15.0, and the installed torch)

Wheels for aarch64 are small CPU builds and carry the same headers; each is downloaded once into CACHE_DIR. Nothing of
them is installed or run: the table is generated from their Functions.h and g++ checks the syntax of every source in
ext/shim. Run it with a Python that has its headers; CXX chooses the compiler.
"""
import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys
import sysconfig
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSIONS = ["2.6.0", "2.9.1", "2.15.0"]
PYTHON_TAG = "311"  # of the wheels; their C++ headers are the same for every Python


def download(cache, version):
    """The wheel's path."""
    pattern = f"torch-{version}-cp{PYTHON_TAG}-*.whl"
    found = sorted(cache.glob(pattern))
    if not found:
        # A constraints file that pins the torch of this environment does not apply here.
        environment = dict(os.environ, PIP_CONSTRAINT=os.devnull)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache),
                        "--platform", "manylinux_2_28_aarch64", "--python-version", f"3.{PYTHON_TAG[1:]}",
                        "--only-binary=:all:", f"torch=={version}"], check=True, env=environment)
        found = sorted(cache.glob(pattern))
    return found[0]


def headers(cache, version):
    """The wheel's torch/include, unpacked."""
    folder = cache / version
    done = folder / "unpacked"
    if not done.exists():
        with zipfile.ZipFile(download(cache, version)) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith("torch/include/")
                                      or name == "torchgen/packaged/autograd/derivatives.yaml"])
        done.touch()
    return folder / "torch/include"


def installed():
    """(version, include) of the torch of this Python, or None. Does not import it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    folder = pathlib.Path(spec.origin).parent
    facts = {}
    exec((folder / "version.py").read_text(encoding="utf-8"), facts)
    return facts["__version__"], folder / "include"


def generate_table(include, target):
    subprocess.run([sys.executable, str(ROOT / "ext/shim/generate_table.py"), str(include), str(target)], check=True)


def check(version, include, scratch):
    """Number of sources that do not compile."""
    scratch.mkdir(parents=True, exist_ok=True)
    table = scratch / "node_table.cpp"
    generate_table(include, table)
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-fsyntax-only", "-fmax-errors=5",
               "-std=c++20" if release >= (2, 13) else "-std=c++17",
               "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-DNDEBUG", '-DTGD_BUILT_FOR="headers"',
               "-isystem", str(include), "-isystem", sysconfig.get_path("include"),
               *(f"-I{ROOT / folder}" for folder in ("include", "ext/shim", "ext/core"))]
    failed = 0
    for source in sorted(ROOT.glob("ext/shim/*.cpp")) + [table]:
        failed += subprocess.run([*command, str(source)]).returncode != 0
    print(f"torch {version}: {'ok' if failed == 0 else f'{failed} sources do not compile'}", flush=True)
    return failed


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    cache = pathlib.Path(arguments[0])
    cache.mkdir(parents=True, exist_ok=True)
    failed = 0
    for version in arguments[1:] or VERSIONS:
        failed += check(version, headers(cache, version), cache / version)
    here = installed() if len(arguments) == 1 else None
    if here is not None:
        failed += check(*here, cache / "installed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
