#!/usr/bin/env bash
# Installs what the tests need, builds, and runs every test. Closes with 'N passed, N failed'.
#
#   bash tests/run.sh [--long] [--headers] [--only STEP]...
#
# --long     also 10,000 fuzzed programs, and the quickstart from a clean copy into a new environment
# --headers  also check the C++ against the headers of other torch versions
# --only     run only this step (may be repeated); the steps are named as they start
# Environment: TGD_TEST_TORCH (default 2.13.0), TGD_TEST_SCOPE=short (only the build and the extension's tests),
# PYTHON (the interpreter to make the virtual environment with).
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$repository"

long=0 headers=0 only=()
while [ $# -gt 0 ]; do
    case $1 in
    --long) long=1 ;;
    --headers) headers=1 ;;
    --only) only+=("$2") && shift ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
    shift
done
torch=${TGD_TEST_TORCH:-2.13.0}
short=0
if [ "${TGD_TEST_SCOPE:-full}" = short ]; then
    short=1
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
passed=0 failed=0 skipped=0
failures=()

# Adds up the last line of a log where that is pytest's closing line or 'N passed, N failed'. False where it is not.
count()
{
    local closing number word
    closing=$(grep -av '^[[:space:]]*$' "$1" | tail -n 1)
    [[ $closing =~ (^|[ =])[0-9]+\ (passed|failed|error) ]] || return 1
    while read -r number word; do
        case $word in
        passed) passed=$((passed + number)) ;;
        failed | error | errors) failed=$((failed + number)) ;;
        skipped) skipped=$((skipped + number)) ;;
        esac
    done < <(grep -oE '[0-9]+ (passed|failed|errors?|skipped)\b' <<<"$closing")
}

# step NAME COMMAND...: one part of the tests. A command without a closing line of its own counts as one test.
step()
{
    local name=$1 log="$logs/$1" status before=$failed start=$SECONDS
    shift
    if [ ${#only[@]} -gt 0 ] && [[ " ${only[*]} " != *" $name "* ]]; then
        return
    fi
    printf '\n== %s\n' "$name"
    set +e # a failing step must not end the run, and errexit must hold inside it
    (
        set -e
        "$@"
    ) </dev/null 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    set -e
    if ! count "$log"; then
        if [ "$status" = 0 ]; then
            passed=$((passed + 1))
        fi
    fi
    if [ "$status" != 0 ] && [ "$failed" = "$before" ]; then
        failed=$((failed + 1))
    fi
    if [ "$failed" != "$before" ]; then
        failures+=("$name")
    fi
    echo "== $name: $((SECONDS - start)) s"
}

# ---- what the tests need ----

base=${PYTHON:-python3}
bash examples/install_system_packages.sh --tests "$base"

venv=$repository/.venv-tests-$torch
python=$venv/bin/python
packages=(setuptools wheel numpy pytest pytest-xdist mypy scikit-learn torchviz transformers selenium)
wanted="torch==$torch ${packages[*]}"
if [ "$(cat "$venv/installed" 2>/dev/null)" != "$wanted" ] || ! "$python" -c '' 2>/dev/null; then
    echo "-- installing torch $torch and what the tests use into ${venv#"$repository"/}"
    "$base" -m venv --clear "$venv"
    pip() { "$python" -m pip --disable-pip-version-check install --quiet "$@" 2>&1 </dev/null | { grep -v '^WARNING' || true; }; }
    pip "torch==$torch"
    "$python" -c 'import importlib.metadata as m; print("torch==" + m.version("torch"))' >"$venv/constraints.txt"
    pip --constraint "$venv/constraints.txt" "${packages[@]}"
    echo "$wanted" >"$venv/installed"
fi
# Nothing may be fetched while a test runs.
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export PYTHONDONTWRITEBYTECODE=1

# ---- the steps ----

# Objects stay apart by torch version and by kind of build, so that one does not undo the other's.
build_base() { echo "$repository/build/tests-$torch${1:+-$1}"; }

build()
{
    printf '[build]\nbuild_base = %s\n' "$(build_base)" >"$venv/build.cfg"
    TGD_WERROR=1 DIST_EXTRA_CONFIG="$venv/build.cfg" "$python" -m pip --disable-pip-version-check install --quiet \
        --no-build-isolation --no-deps --force-reinstall .
    (cd tests && "$python" -c 'import torchgraphdbg; print("built for torch", torchgraphdbg._core.built_for())')
}

pytest() { "$python" -m pytest -q --disable-warnings -p no:cacheprovider "$@"; }

# As many files at a time as there are processors, but for what compares times.
python_tests() { pytest --numprocesses auto --dist loadfile --durations 8 --ignore tests/python/test_bench.py tests/python; }

bench() { pytest tests/python/test_bench.py; }

stubs()
{
    cd "$venv" # where no folder of the sources shadows the installed package, and mypy may keep its cache
    "$python" -m mypy.stubtest torchgraphdbg
    "$python" -m mypy --strict "$repository/tests/typing/consumer.py"
}

browser() { pytest tests/browser; }

leaks() { pytest tests/leaks; }

fuzz() { "$python" tests/fuzz/fuzz.py --programs 10000 --jobs 2; } # tests/python runs the short form

# The extension under AddressSanitizer. Python and torch themselves are not built for it, so leaks are not judged here
# (tests/leaks does that) and memory is only as guarded as our own code makes it.
with_asan()
{
    local base library
    base=$(build_base asan)
    # torch hides the type information that UBSan's check of virtual tables asks for.
    CXXFLAGS=-fno-sanitize=vptr TGD_SANITIZE=address,undefined "$python" setup.py --quiet build --build-base "$base"
    library=("$base"/lib*)
    LD_PRELOAD="$("${CC:-cc}" -print-file-name=libasan.so) $("${CC:-cc}" -print-file-name=libstdc++.so)" \
        ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:detect_odr_violation=0 \
        UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        PYTHONPATH=${library[0]} "$@"
}

asan_tests()
{
    # Left out: what starts programs of its own, what measures time, what needs freed memory back (ASan holds it), and a
    # fork beside a thread that allocates: ASan's own allocator may be locked in the child.
    local apart=() apart_name
    for apart_name in embed examples bench run auto show light_ground ddp_unused timeline triage_gate forks rpc; do
        apart+=(--ignore "tests/python/test_$apart_name.py")
    done
    with_asan "$python" -m pytest -q --disable-warnings -p no:cacheprovider --numprocesses auto --dist loadfile \
        tests/python --deselect tests/python/test_api.py::test_memory_does_not_grow \
        --deselect tests/python/test_light_recording.py::test_no_recycled_address_accuses_an_innocent_line \
        --deselect tests/python/test_threads.py::test_fork_while_another_thread_draws "${apart[@]}"
}

step build build
if [ ${#failures[@]} -eq 0 ]; then
    if [ "$short" = 1 ]; then
        step python python_tests
    else
        step c bash tests/c/run.sh
        step python python_tests
        step bench bench
        step stubs stubs
        step browser browser
        step leaks leaks
        step asan asan_tests
    fi
    if [ "$long" = 1 ]; then
        step fuzz fuzz
        step quickstart bash tests/quickstart.sh
    fi
    if [ "$headers" = 1 ]; then
        step headers "$python" tests/headers/check.py build/headers
    fi
fi

echo
if [ ${#failures[@]} -gt 0 ]; then
    echo "failed: ${failures[*]}"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
