#!/usr/bin/env bash
# Builds and runs the C tests: the core and the picture over a libtorch that is not there (fake_torch.c).
# Needs a C and a C++ compiler, Graphviz's development files and python3; valgrind for the step of that name.
# Closes with 'N passed, N failed'.
#
#   bash tests/c/run.sh [--only STEP]... [NAME]...
#
# Steps: header    tgd.h by itself as C99 and as C++, every warning an error
#        plain     optimised, as it is shipped
#        asan      with AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
#        threads   with ThreadSanitizer, the tests that start threads
#        valgrind  memcheck, with smaller cases
# NAME: only the tests whose names contain it ("walk" for test_walk.c).
# Environment: CC, CXX, TGD_TEST_BUILD (a folder for the programs; default: build/tests-c).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
build=${TGD_TEST_BUILD:-$repository/build/tests-c}
cc=${CC:-cc} cxx=${CXX:-c++}
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

steps=() names=()
while [ $# -gt 0 ]; do
    case $1 in
    --only) steps+=("$2") && shift ;;
    -*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
    *) names+=("$1") ;;
    esac
    shift
done

passed=0 failed=0
fail() # WORDS
{
    failed=$((failed + 1))
    echo "FAILED $1"
}
wanted() # STEP
{
    [ ${#steps[@]} -eq 0 ] || [[ " ${steps[*]} " == *" $1 "* ]]
}

tests=() # test_walk.c and so on, those asked for
for source in "$here"/test_*.c; do
    for name in "${names[@]:-}"; do
        if [[ $(basename "$source" .c) == *"$name"* ]]; then
            tests+=("$source")
            break
        fi
    done
done
if [ ${#tests[@]} -eq 0 ]; then
    echo "no test is called ${names[*]}" >&2
    exit 2
fi

# ---- what is needed ----

lib=$("$cc" -print-file-name=libgvc.so)
graphviz_include=/usr/include/graphviz
if command -v pkg-config >/dev/null && pkg-config --exists libgvc; then
    lib=$(pkg-config --variable=libdir libgvc)/libgvc.so
    graphviz_include=$(pkg-config --cflags-only-I libgvc | sed 's/^-I//; s/ .*//')
fi
if [ ! -e "$lib" ]; then
    echo "Graphviz's development files are missing: apt-get install libgraphviz-dev" >&2
    exit 1
fi
lib=$(dirname "$(readlink -f "$lib")")
plugins=("$(compgen -G "$lib/graphviz/libgvplugin_dot_layout.so*" | head -n 1)"
    "$(compgen -G "$lib/graphviz/libgvplugin_core.so*" | head -n 1)")
libraries=(-L"$lib" -lgvc -lcgraph -lcdt "${plugins[@]}" -Wl,-rpath,"$lib" -Wl,-rpath,"$lib/graphviz" -lm -ldl -pthread)

mkdir -p "$build"
# A locale with a decimal comma, for the test that numbers do not follow it.
if command -v localedef >/dev/null && [ ! -e "$build/locale/de_DE.UTF-8" ]; then
    mkdir -p "$build/locale"
    localedef -i de_DE -f UTF-8 "$build/locale/de_DE.UTF-8" 2>/dev/null || true
fi

# ---- building and running ----

warnings=(-Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes)
includes=(-I"$repository/include" -I"$repository/ext/core" -I"$repository/ext/shim" -I"$repository/graphviz" -I"$here")

# compile MODE FLAG...: one program in $build/MODE for each test.
compile()
{
    local mode=$1 folder=$build/$1 source base
    shift
    local command=("$cc" -std=c11 -g "$@") wrap=()
    rm -rf "$folder"
    mkdir -p "$folder"
    "$cxx" -std=c++17 -g "$@" -Wall -Wextra -Wconversion -Wshadow "${includes[@]}" -c "$here/engine_queue.cpp" \
        -o "$folder/engine_queue.o" || return 1
    "${command[@]}" -shared -fPIC "${warnings[@]}" "${includes[@]}" "$here/fake_cudart.c" \
        -o "$folder/libfake_cudart.so" || return 1
    python3 "$repository/graphviz/page/embed.py" "$folder/page_assets.c" || return 1
    for source in "$repository"/ext/core/*.c "$repository"/graphviz/*.c "$folder/page_assets.c" "$here/fake_torch.c" \
        "${tests[@]}"; do
        printf '%s\0%s\0' "$source" "$folder/$(basename "$source" .c).o"
    done | xargs -0 -n 2 -P "$jobs" "$SHELL" -c '
        source=${@: -2:1} object=${@: -1}
        exec "${@:1:$#-2}" -c "$source" -o "$object"' compile "${command[@]}" "${warnings[@]}" "${includes[@]}" \
        -isystem "$graphviz_include" || return 1
    for source in "${tests[@]}"; do
        base=$folder/$(basename "$source" .c)
        wrap=()
        if grep -q '"failing_malloc.h"' "$source"; then
            wrap=(-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free)
        fi
        mapfile -t objects < <(ls "$folder"/*.o | grep -v '/test_')
        "$cxx" "$@" "$base.o" "${objects[@]}" "${wrap[@]}" "${libraries[@]}" -o "$base" || return 1
    done
}

# count LOG STATUS NAME: adds up a program's closing line.
count()
{
    local closing
    closing=$(grep -aE '^[0-9]+ passed, [0-9]+ failed$' "$1" | tail -n 1)
    if [ -n "$closing" ]; then
        passed=$((passed + ${closing%% *}))
        closing=${closing#*, }
        failed=$((failed + ${closing%% *}))
    fi
    if [ "$2" != 0 ] && [ "${closing%% *}" = 0 ] || [ -z "$closing" ]; then
        fail "$3 (status $2)"
    fi
}

# run_one NAME COMMAND...: one program, behind the command. Its words go to $folder/NAME.log, its status beside it.
run_one()
{
    local name=$1 status=0
    shift
    rm -rf "$folder/$name.out"
    mkdir -p "$folder/$name.out"
    (cd "$here" && TGD_TEST_OUT="$folder/$name.out" LOCPATH="$build/locale" \
        TORCHGRAPHDBG_CUDART="$folder/libfake_cudart.so" "$@" "$folder/$name") >"$folder/$name.log" 2>&1 || status=$?
    echo "$status" >"$folder/$name.status"
}

# run MODE COMMAND...: every program, as many at a time as there are processors.
run()
{
    local mode=$1 folder=$build/$1 source name status
    shift
    for source in "${tests[@]}"; do
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
            wait -n || true
        done
        run_one "$(basename "$source" .c)" "$@" &
    done
    wait
    for source in "${tests[@]}"; do
        name=$(basename "$source" .c)
        sed "s/^/$name: /" "$folder/$name.log"
        count "$folder/$name.log" "$(cat "$folder/$name.status")" "$mode/$name"
        if [ "$name" = test_json ]; then
            status=0
            python3 "$here/check_json.py" "$folder/$name.out" >"$folder/check_json.log" 2>&1 || status=$?
            sed "s/^/check_json: /" "$folder/check_json.log"
            count "$folder/check_json.log" "$status" "$mode/check_json"
        fi
    done
}

# step MODE "FLAGS" COMMAND...
step()
{
    local mode=$1 flags=$2 start=$SECONDS
    shift 2
    echo "-- $mode"
    if compile "$mode" $flags; then
        run "$mode" "$@"
    else
        fail "$mode: does not compile"
    fi
    echo "-- $mode: $((SECONDS - start)) s"
}

if wanted header; then
    echo "-- header"
    alone=(-pedantic -Wall -Wextra -Wconversion -Wshadow -Werror -fsyntax-only -I"$repository/include")
    for standard in c99 c11 c17; do
        if "$cc" -std=$standard "${alone[@]}" -Wstrict-prototypes "$here/header.c"; then
            passed=$((passed + 1))
        else
            fail "header/$standard"
        fi
    done
    for standard in c++11 c++17 c++20; do
        if "$cxx" -std=$standard "${alone[@]}" "$here/header.cpp"; then
            passed=$((passed + 1))
        else
            fail "header/$standard"
        fi
    done
fi

if wanted plain; then
    step plain "-O2 -Werror" env # here alone: sanitizers make compilers see what is not there
fi

if wanted asan; then
    # Graphviz and what it loads keep memory until the process ends; ours must not.
    printf 'leak:%s\n' libgvc.so libcgraph.so libcdt.so libgvplugin libpango libfontconfig libglib >"$build/leaks"
    step asan "-O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined" env \
        ASAN_OPTIONS=detect_stack_use_after_return=1 LSAN_OPTIONS="suppressions=$build/leaks:print_suppressions=0" \
        UBSAN_OPTIONS=print_stacktrace=1
fi

if wanted threads; then
    everything=("${tests[@]}")
    mapfile -t tests < <(grep -l pthread_create "${everything[@]}" || true)
    if [ ${#tests[@]} -gt 0 ]; then
        step threads "-O1 -fsanitize=thread" env TSAN_OPTIONS=halt_on_error=1 TGD_TEST_QUICK=1
    fi
    tests=("${everything[@]}")
fi

if wanted valgrind; then
    if command -v valgrind >/dev/null; then
        step valgrind "-O1" env TGD_TEST_QUICK=1 valgrind --quiet --error-exitcode=9 --leak-check=full \
            --errors-for-leak-kinds=definite --show-leak-kinds=definite
    else
        echo "-- valgrind: not installed, left out"
    fi
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
