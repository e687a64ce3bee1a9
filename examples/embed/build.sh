#!/usr/bin/env bash
# Builds embed.cpp against the installed torch and torchgraphdbg.
#
#   bash examples/embed/build.sh [OUTPUT]      (default: build/embed in the repository)
#
# PYTHON (default: python3) is asked once where the headers and libraries are; the program itself needs no Python.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
output=${1:-$here/../../build/embed}
mkdir -p "$(dirname "$output")"

mapfile -t where < <(cd "$here" && "${PYTHON:-python3}" - <<'PYTHON'
import pathlib, torch, torchgraphdbg
print(pathlib.Path(torch.__file__).parent)
print(pathlib.Path(torchgraphdbg.__file__).parent)
print(int(torch.compiled_with_cxx11_abi()))
major, minor = (int(part) for part in torch.__version__.split(".")[:2])
print("c++20" if (major, minor) >= (2, 13) else "c++17")
PYTHON
)
if [ ${#where[@]} -ne 4 ]; then
    echo "torch and torchgraphdbg must be installed for ${PYTHON:-python3}" >&2
    exit 1
fi
torch=${where[0]} torchgraphdbg=${where[1]}

# torch's own libraries bring libraries that only the loader finds.
"${CXX:-c++}" -std="${where[3]}" -O1 -DNDEBUG -Wall -Wextra -D_GLIBCXX_USE_CXX11_ABI="${where[2]}" \
    -isystem "$torch/include" -I"$torchgraphdbg/include" "$here/embed.cpp" -o "$output" \
    -L"$torchgraphdbg/lib" -L"$torch/lib" -ltorchgraphdbg -ltorch_cpu -lc10 \
    -Wl,-rpath,"$torchgraphdbg/lib",-rpath,"$torch/lib" -Wl,--allow-shlib-undefined
echo "$output"
