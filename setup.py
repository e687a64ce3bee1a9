"""Builds torchgraphdbg against the torch and the Graphviz that are installed on this machine.

Four groups of sources, each compiled with only its own include paths, so that an include across the layers does
not compile: core (C), graphviz (C), shim (C++, libtorch) and python (C, and C++ where libtorch_python forces it).
The first three become torchgraphdbg/lib/libtorchgraphdbg.so, the last one torchgraphdbg/_core.

Environment: CC, CXX, CFLAGS, CXXFLAGS, LDFLAGS as usual; MAX_JOBS; TGD_WERROR=1 makes warnings errors;
TGD_SANITIZE=address,undefined builds with sanitizers.
"""
import hashlib
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError

ROOT = pathlib.Path(__file__).resolve().parent
MAC = sys.platform == "darwin"
LIBRARY = "libtorchgraphdbg" + (".dylib" if MAC else ".so")
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow"]
HEADERS = ["tgd.h", "tgd_findings.def"]


class BuildStopped(BaseError):
    """Says what is missing and how to get it."""


def group_sources():
    """Sources by group, each in a fixed order. The generated table joins the shim."""
    shim = sorted(ROOT.glob("ext/shim/*.cpp"))
    in_python = [path for path in shim if path.name.startswith("python_")]
    return {
        "core": sorted(ROOT.glob("ext/core/*.c")),
        "graphviz": sorted(ROOT.glob("graphviz/*.c")),
        "shim": [path for path in shim if path not in in_python],
        "python": in_python + sorted(ROOT.glob("ext/python/*.c")),
    }


class Torch:
    """What the build needs to know of the installed torch, learnt without importing it (that takes seconds)."""

    def __init__(self):
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.origin:
            raise BuildStopped(
                "torchgraphdbg is compiled against the torch it will debug, and no torch is installed for "
                f"{sys.executable}.\nInstall one first, then build without isolation:\n"
                "    pip install torch==2.13.0 setuptools wheel\n    pip install --no-build-isolation .")
        self.folder = pathlib.Path(spec.origin).parent
        facts = {}
        exec((self.folder / "version.py").read_text(encoding="utf-8"), facts)
        self.version, self.git = facts["__version__"], facts.get("git_version") or "unknown"
        self.include, self.lib = self.folder / "include", self.folder / "lib"
        if not (self.include / "torch/csrc/autograd/generated/Functions.h").is_file():
            raise BuildStopped(f"torch {self.version} in {self.folder} came without its C++ headers; "
                               "install a wheel from pip, such as: pip install torch==2.13.0")
        release = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        if release < (2, 6):
            raise BuildStopped(f"torch {self.version} is too old, 2.6 is the oldest that works: "
                               "pip install torch==2.13.0")
        self.std = "-std=c++20" if release >= (2, 13) else "-std=c++17"

    def cxx11_abi(self):
        """libstdc++'s string ABI, told by the mangled name of c10::Error's constructor."""
        c10 = self.lib / ("libc10.dylib" if MAC else "libc10.so")
        return int(MAC or b"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx11" in c10.read_bytes())


class Graphviz:
    """Headers, libraries, and the two plugins that are linked in so that no config file is needed."""

    ADVICE = ("Graphviz's development files are missing ({}). Install them, then build again:\n"
              "    apt-get install libgraphviz-dev        (Debian, Ubuntu)\n"
              "    dnf install graphviz-devel             (Fedora, RHEL)\n"
              "    brew install graphviz                  (macOS)")

    def __init__(self):
        prefixes = [pathlib.Path(p) for p in (os.environ.get("GRAPHVIZ_PREFIX"), sys.prefix, "/usr/local", "/usr",
                                              "/opt/homebrew", "/opt/local") if p]
        include, lib = self._ask_pkg_config()
        self.include = next((path for path in [include] + [p / "include/graphviz" for p in prefixes]
                             if path and (path / "gvc.h").is_file()), None)
        if self.include is None:
            raise BuildStopped(self.ADVICE.format("graphviz/gvc.h"))
        multiarch = sysconfig.get_config_var("MULTIARCH") or ""
        libs = [lib] + [p / "lib" / multiarch for p in prefixes] + [p / "lib64" for p in prefixes] + \
               [p / "lib" for p in prefixes]
        self.lib = next((path for path in libs if path and self._library(path, "libgvc")), None)
        if self.lib is None:
            raise BuildStopped(self.ADVICE.format("libgvc"))
        self.libraries = [self._library(self.lib, name) for name in ("libgvc", "libcgraph", "libcdt")]
        self.plugin_folder = self.lib / "graphviz"
        for name in ("libgvplugin_dot_layout", "libgvplugin_core"):
            self.libraries.append(self._library(self.plugin_folder, name))
            if self.libraries[-1] is None:
                raise BuildStopped(self.ADVICE.format(self.plugin_folder / name))
        header = self.include / "graphviz_version.h"
        text = header.read_text(encoding="utf-8", errors="replace") if header.is_file() else ""
        found = re.search(r'PACKAGE_VERSION\s+"([^"]+)"', text)
        self.version = found.group(1) if found else "unknown"

    @staticmethod
    def _ask_pkg_config():
        def variable(name):
            done = subprocess.run(["pkg-config", f"--variable={name}", "libgvc"], capture_output=True, text=True)
            return done.stdout.strip() if done.returncode == 0 else ""
        if not shutil.which("pkg-config"):
            return None, None
        include, lib = variable("includedir"), variable("libdir")
        folder = pathlib.Path(include) if include else None
        if folder is not None and not (folder / "gvc.h").is_file():
            folder = folder / "graphviz"
        return folder, pathlib.Path(lib) if lib else None

    @staticmethod
    def _library(folder, name):
        """The library's path, or None. A system without the development link has only the numbered name."""
        ending = ".dylib" if MAC else ".so"
        exact = folder / (name + ending)
        if exact.exists():
            return exact
        return next(iter(sorted(folder.glob(f"{name}.*.dylib" if MAC else f"{name}.so.*"))), None)


class Compile:
    """One object file: built when a source, a header it read or its command has changed."""

    def __init__(self, source, target, command, strict):
        self.source, self.target, self.strict = source, target, strict
        self.depends = target.with_suffix(".d")
        self.stamp = target.with_suffix(".cmd")
        self.command = command + ["-MD", "-MF", str(self.depends), "-c", str(source), "-o", str(target)]

    def fresh(self):
        stamp = digest(self.command)
        good = (f"{stamp} clean",) if self.strict else (f"{stamp} clean", f"{stamp} warned")
        if not (self.target.is_file() and self.depends.is_file() and read(self.stamp) in good):
            return False
        built = self.target.stat().st_mtime
        rule = self.depends.read_text(encoding="utf-8").replace("\\\n", " ").split(":", 1)[1]
        try:
            return all(os.stat(path).st_mtime <= built for path in shlex.split(rule) if not path.endswith(".gch"))
        except OSError:
            return False

    def run(self):
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self.stamp.unlink(missing_ok=True)
        done = subprocess.run(self.command + (["-Werror"] if self.strict else []), capture_output=True, text=True)
        text = done.stdout + done.stderr
        if done.returncode == 0:
            self.stamp.write_text(digest(self.command) + (" warned" if text else " clean"), encoding="utf-8")
        return done.returncode, (shlex.join(self.command) + "\n" if done.returncode else "") + text


def digest(command):
    return hashlib.sha256("\0".join(command).encode()).hexdigest()


def read(path):
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


def write_if_changed(path, text):
    if read(path) != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def environment_flags(*names):
    return [flag for name in names for flag in shlex.split(os.environ.get(name, ""))]


class BuildCore(build_ext):
    """Replaces distutils' compiler driver: groups with flags of their own, parallel, and only what has changed."""

    def run(self):
        self.torch, self.graphviz = Torch(), Graphviz()
        self.objects = ROOT / self.build_temp
        package = pathlib.Path(self.get_ext_fullpath("torchgraphdbg._core")).parent
        self.compile_all()
        library = package / "lib" / LIBRARY
        self.link_library(library)
        self.link_module(pathlib.Path(self.get_ext_fullpath("torchgraphdbg._core")))
        for name in HEADERS:
            target = package / "include/torchgraphdbg" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / "include/torchgraphdbg" / name, target)
        write_if_changed(package / "_build.py", "\n".join([
            '"""What this installation was built for. Written by setup.py."""',
            f"TORCH_VERSION = {self.torch.version!r}",
            f"TORCH_GIT = {self.torch.git!r}",
            f"GRAPHVIZ_VERSION = {self.graphviz.version!r}",
            f"PYTHON = {sys.implementation.cache_tag!r}", ""]))

    def get_outputs(self):
        package = pathlib.Path(self.get_ext_fullpath("torchgraphdbg._core")).parent
        extra = [package / "lib" / LIBRARY, package / "_build.py"]
        extra += [package / "include/torchgraphdbg" / name for name in HEADERS]
        return [self.get_ext_fullpath("torchgraphdbg._core")] + [str(path) for path in extra]

    def get_output_mapping(self):
        return {}

    # ---- compiling ----

    def flags(self):
        """Command prefix by (group, language)."""
        sanitize = os.environ.get("TGD_SANITIZE", "")
        # Not vptr: it asks for typeinfo that libtorch keeps to itself.
        common = ["-O1", "-g", "-fno-omit-frame-pointer", f"-fsanitize={sanitize}", "-fno-sanitize=vptr"] \
            if sanitize else ["-O2"]
        self.sanitize = [f"-fsanitize={sanitize}"] if sanitize else []
        common += ["-fPIC", "-pthread"] + WARNINGS
        c = shlex.split(os.environ.get("CC", "cc")) + ["-std=c11"] + common
        torch = [f"-D_GLIBCXX_USE_CXX11_ABI={self.torch.cxx11_abi()}", "-DNDEBUG",
                 f'-DTGD_BUILT_FOR="{self.torch.version} {self.torch.git}"',
                 *isystem(self.torch.include)]
        cxx = shlex.split(os.environ.get("CXX", "c++")) + [self.torch.std] + common + torch
        self.cxx = cxx[:len(shlex.split(os.environ.get("CXX", "c++")))]
        c_user, cxx_user = environment_flags("CPPFLAGS", "CFLAGS"), environment_flags("CPPFLAGS", "CXXFLAGS")
        # The version script, not -fvisibility, chooses what the library exports, so calls inside it stay direct
        # only with -Bsymbolic-functions and without interposition.
        direct = [] if MAC else ["-fno-semantic-interposition"]
        # Not needed: where the CUDA Toolkit is, the copies of its types in cudart.h are checked against its headers.
        cuda = isystem(*cuda_include(self.torch))
        include, shim, core = (f"-I{ROOT / folder}" for folder in ("include", "ext/shim", "ext/core"))
        paths = sysconfig.get_paths()
        python = ["-fvisibility=hidden", "-fwrapv", *isystem(*{paths["include"]: 0, paths["platinclude"]: 0})]
        graphviz = isystem(self.graphviz.include, self.graphviz.include.parent)
        return {
            ("core", ".c"): [*c, *direct, include, shim, core, *cuda, *c_user],
            ("graphviz", ".c"): [*c, *direct, include, shim, core, f"-I{ROOT / 'graphviz'}", *graphviz, *c_user],
            ("shim", ".cpp"): [*cxx, *direct, "-fvisibility-inlines-hidden", include, shim, core, *cxx_user],
            ("python", ".c"): [*c, include, shim, core, f"-I{ROOT / 'ext/python'}", *python, *c_user],
            ("python", ".cpp"): [*cxx, include, shim, core, *python, *cxx_user],
        }

    def generated_table(self):
        """ext/shim/generate_table.py's output for this torch, beside the objects."""
        path = ROOT / "ext/shim/generate_table.py"
        target = self.objects / "node_table.cpp"
        stamp = target.with_suffix(".cmd")
        made_from = digest([self.torch.version, self.torch.git, str(self.torch.include), read(path)])
        if not target.is_file() or read(stamp) != made_from:
            spec = importlib.util.spec_from_file_location("generate_table", path)
            generator = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(generator)
            write_if_changed(target, generator.generate(self.torch.include))
            stamp.write_text(made_from, encoding="utf-8")
        return target

    def page_assets(self):
        """The script and style of the HTML page as C arrays, beside the objects."""
        path = ROOT / "graphviz/page/embed.py"
        spec = importlib.util.spec_from_file_location("embed_page", path)
        embed = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(embed)
        target = self.objects / "page_assets.c"
        write_if_changed(target, embed.generate())
        return target

    def precompiled(self, flags):
        """(where the copy of ext/shim/torch_headers.h for this build stands, the step that compiles it); None with a
        compiler other than gcc, which would want other options."""
        defines = subprocess.run([*self.cxx, "-dM", "-E", "-x", "c++", os.devnull], capture_output=True, text=True).stdout
        if "__GNUC__" not in defines or "__clang__" in defines:
            return None
        copy = self.objects / "shim/torch_headers.h"
        write_if_changed(copy, read(ROOT / "ext/shim/torch_headers.h"))
        return copy, Compile(copy, copy.with_name(copy.name + ".gch"), [*flags["shim", ".cpp"], "-x", "c++-header"], False)

    def compile_all(self):
        flags = self.flags()
        headers = self.precompiled(flags)
        if headers is not None:
            flags["shim", ".cpp"] += ["-include", str(headers[0]), "-fpch-deps"]
        sources = group_sources()
        sources["shim"].append(self.generated_table())
        sources["graphviz"].append(self.page_assets())
        strict = os.environ.get("TGD_WERROR", "0") == "1"
        self.linked, steps = {}, []
        for group, paths in sources.items():
            made = [Compile(path, self.objects / group / (path.name + ".o"), flags[group, path.suffix], strict)
                    for path in paths]
            self.linked[group] = [step.target for step in made]
            steps += [step for step in made if self.force or not step.fresh()]
        if not steps:
            return
        steps.sort(key=lambda step: step.source.suffix != ".cpp")  # the slow ones first
        jobs = int(os.environ.get("MAX_JOBS") or os.cpu_count() or 1)
        print(f"compiling {len(steps)} files against torch {self.torch.version}, {jobs} at a time", flush=True)
        if headers is not None and sum(step.source.suffix == ".cpp" for step in steps) > 4:
            headers[1].run()  # where that fails, the files read the headers themselves
        try:
            self.compile_steps(steps, jobs)
        finally:
            if headers is not None:
                headers[1].target.unlink(missing_ok=True)  # 400 MB

    def compile_steps(self, steps, jobs):
        with ThreadPoolExecutor(jobs) as pool:
            failed = 0
            for step, (status, text) in zip(steps, pool.map(Compile.run, steps)):
                if text:
                    print(text, file=sys.stderr, flush=True)
                failed += status != 0
        if failed:
            raise BuildStopped(f"{failed} of {len(steps)} files did not compile")

    # ---- linking ----

    def link(self, target, objects, arguments, exports):
        """Link unless the target is newer than its objects and was made by the same command."""
        script = self.objects / (target.name + ".exports")
        if MAC:
            write_if_changed(script, "".join(f"_{name}\n" for name in exports))
            options = ["-dynamiclib", f"-Wl,-exported_symbols_list,{script}"]
        else:
            write_if_changed(script, "{ global: " + " ".join(f"{name};" for name in exports) + " local: *; };\n")
            options = ["-shared", f"-Wl,--version-script={script}", "-Wl,-Bsymbolic-functions", "-Wl,--as-needed"]
        command = [*self.cxx, "-pthread", *self.sanitize, *options, *map(str, objects), *arguments,
                   *environment_flags("LDFLAGS"), "-o", str(target)]
        stamp = script.with_suffix(".cmd")
        inputs = [*objects, script, *(pathlib.Path(a) for a in arguments if a.endswith(LIBRARY) and a[0] != "-")]
        if not self.force and target.is_file() and read(stamp) == digest(command) and \
                all(path.stat().st_mtime <= target.stat().st_mtime for path in inputs):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        # A process may have the old file mapped: replace it, never write into it.
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        command[-1] = str(fresh)
        done = subprocess.run(command)
        command[-1] = str(target)
        if done.returncode:
            fresh.unlink(missing_ok=True)
            raise BuildStopped(f"{target.name} did not link: {shlex.join(command)}")
        os.replace(fresh, target)
        stamp.write_text(digest(command), encoding="utf-8")

    def link_library(self, target):
        names = [f"-Wl,-install_name,@rpath/{LIBRARY}"] if MAC else [f"-Wl,-soname,{LIBRARY}"]
        origin = "@loader_path" if MAC else "$ORIGIN"
        arguments = [*names, f"-L{self.torch.lib}", "-ltorch_cpu", "-lc10", *map(str, self.graphviz.libraries),
                     *([] if MAC else ["-ldl"]),  # glibc before 2.34 keeps dlopen apart
                     *rpath(f"{origin}/../../torch/lib", self.torch.lib, self.graphviz.plugin_folder)]
        if not MAC:
            arguments += [f"-Wl,-rpath-link,{self.torch.lib}", f"-Wl,-rpath-link,{self.graphviz.lib}"]
            arguments += [] if self.sanitize else ["-Wl,-z,defs"]  # a missing source is an error here, not at import
        objects = self.linked["core"] + self.linked["graphviz"] + self.linked["shim"]
        self.link(target, objects, arguments, ["tgd_*"])
        self.library = target

    def link_module(self, target):
        arguments = [str(self.library), f"-L{self.torch.lib}", "-ltorch_python", "-ltorch_cpu", "-lc10",
                     *rpath(("@loader_path" if MAC else "$ORIGIN") + "/lib")]
        # Python's own symbols come from the interpreter.
        arguments += ["-undefined", "dynamic_lookup"] if MAC else [f"-Wl,-rpath-link,{self.torch.lib}"]
        self.link(target, self.linked["python"], arguments, ["PyInit__core"])


def cuda_include(torch):
    """The folder of cuda_runtime_api.h, in a list, if this machine has one."""
    folders = [pathlib.Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders += sorted((torch.include.parents[1] / "nvidia").glob("cu*")) + [pathlib.Path("/usr/local/cuda")]
    folders += sorted(pathlib.Path("/usr/local").glob("cuda-*"))
    return [f / "include" for f in folders if (f / "include/cuda_runtime_api.h").is_file()][:1]


def isystem(*folders):
    """System include options, but never for the compiler's own /usr/include."""
    return [part for folder in folders if str(folder) != "/usr/include" for part in ("-isystem", str(folder))]


def rpath(*folders):
    return [f"-Wl,-rpath,{folder}" for folder in folders]


setup(
    ext_modules=[Extension("torchgraphdbg._core", sources=[
        str(path.relative_to(ROOT)) for paths in group_sources().values() for path in paths])],
    cmdclass={"build_ext": BuildCore},
)
