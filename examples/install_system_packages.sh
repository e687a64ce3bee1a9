#!/usr/bin/env bash
# Installs what the build needs from the system, and nothing that is already there.
#
#   bash examples/install_system_packages.sh [--tests] [PYTHON]
#
# --tests adds what only the tests use. PYTHON (default: python3) is the interpreter that will build.
# On a system without apt-get it names what is missing and stops.
set -euo pipefail

tests=0
if [ "${1:-}" = --tests ]; then
    tests=1
    shift
fi
python=${1:-python3}

missing=()
header() # HEADER PACKAGE [FLAG...]: want PACKAGE unless the compiler finds HEADER
{
    local header=$1 package=$2
    shift 2
    if ! echo "#include <$header>" | cc -E "$@" -x c - >/dev/null 2>&1; then
        missing+=("$package")
    fi
}
program() # PROGRAM PACKAGE
{
    if ! command -v "$1" >/dev/null 2>&1; then
        missing+=("$2")
    fi
}

program cc gcc
program c++ g++
header graphviz/gvc.h libgraphviz-dev
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
header Python.h "python$version-dev" -I"$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    missing+=("python$version-venv")
fi
if [ "$tests" = 1 ]; then
    program dot graphviz
    program valgrind valgrind
    if ! command -v chromium-browser >/dev/null 2>&1 && ! command -v google-chrome >/dev/null 2>&1; then
        program chromium chromium
    fi
    program chromedriver chromium-driver
fi

if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "missing from this system: ${missing[*]} (Debian's names); install them and run this again" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
    as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
echo "-- installing system packages: ${missing[*]}"
install() { "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >"$log" 2>&1 </dev/null; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The package lists of a fresh machine are empty or old.
if ! install; then
    "${as_root[@]}" apt-get update -q >/dev/null </dev/null || true
    if ! install; then
        tail -n 20 "$log" >&2
        echo "apt-get could not install: ${missing[*]}" >&2
        exit 1
    fi
fi
