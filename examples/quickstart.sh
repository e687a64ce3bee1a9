#!/usr/bin/env bash
# From a fresh clone to a broken training step explained: installs what is missing, builds, runs quickstart.py.
#
#   bash examples/quickstart.sh
#
# Builds into the active virtual environment, else into .venv in the repository. PYTHON names another interpreter
# for making that .venv. A second run builds again only where a source or torch has changed.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
say() { echo "-- $*"; }

# The build wants CPython 3.10 or newer; the newest that distributions call python3 comes first.
pick_python()
{
    local candidate
    for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14 python3.10}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "no CPython 3.10 or newer found (set PYTHON to one)" >&2
    return 1
}

if [ -n "${VIRTUAL_ENV:-}" ]; then
    python=$VIRTUAL_ENV/bin/python
    say "using the active environment $VIRTUAL_ENV"
    bash "$repository/examples/install_system_packages.sh" "$python"
else
    base=$(pick_python)
    bash "$repository/examples/install_system_packages.sh" "$base"
    python=$repository/.venv/bin/python
    if ! "$python" -c '' >/dev/null 2>&1; then
        options=()
        if (cd / && "$base" -c 'import torch') >/dev/null 2>&1; then
            options=(--system-site-packages)
        fi
        say "making the virtual environment .venv"
        "$base" -m venv --clear "${options[@]}" "$repository/.venv"
    fi
fi

cd "$repository/examples" # so that no folder of the sources shadows an installed package
has() { "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"; }
pip() { "$python" -m pip --disable-pip-version-check install --quiet "$@"; }

if ! has torch; then
    say "installing torch 2.13.0 (the largest step, some minutes)"
    pip torch==2.13.0
fi
packages=()
for module in setuptools wheel sklearn; do
    if ! has "$module"; then
        packages+=("${module/sklearn/scikit-learn}")
    fi
done
if [ ${#packages[@]} -gt 0 ]; then
    say "installing ${packages[*]}"
    pip "${packages[@]}"
fi

# What the build depends on: the sources, and the exact torch and interpreter.
fingerprint=$(
    {
        cd "$repository"
        find ext graphviz include setup.py pyproject.toml -type f \
            \( -name '*.[ch]' -o -name '*.cpp' -o -name '*.def' -o -name '*.py' -o -name '*.pyi' -o -name '*.toml' \) \
            -not -path 'ext/torchgraphdbg/include/*' -not -name _build.py -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
        cd examples
        "$python" - <<'PYTHON'
import importlib.util, pathlib, sys
print(sys.version)
print((pathlib.Path(importlib.util.find_spec("torch").origin).parent / "version.py").read_text())
PYTHON
    } | sha256sum | cut -d ' ' -f 1
)
stamp=$("$python" -c 'import sys; print(sys.prefix)')/torchgraphdbg-quickstart.stamp
if ! has torchgraphdbg || [ "$(cat "$stamp" 2>/dev/null)" != "$fingerprint" ]; then
    say "building torchgraphdbg against the torch that is installed (a minute or two)"
    rm -f "$stamp"
    pip --no-build-isolation --no-deps --force-reinstall "$repository"
    echo "$fingerprint" >"$stamp"
else
    say "torchgraphdbg is built and nothing has changed"
fi

say "running examples/quickstart.py"
cd "$repository"
exec "$python" examples/quickstart.py "$@"
