#!/usr/bin/env bash
# Damaged inputs with the core under the address and undefined-behaviour sanitizers.
#
#   fuzz/under_asan.sh files --count 20000 --seed 3     model files through load and run: files.py
#   fuzz/under_asan.sh readers --seconds 600            every reader: readers.py
#
# Builds the Python module anew in build/asan and needs GCC, cmake and the environment that .venv or PYTHON names.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?files or readers}
shift
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
bin=$(dirname "$python")
cmake=$(PATH="$bin:$PATH" command -v cmake)
compiler=${CXX:-g++}
folder=$PWD/build/asan
mkdir -p build

"$cmake" -S . -B "$folder" -DCMAKE_CXX_COMPILER="$compiler" -DPython_EXECUTABLE="$python" \
  -DMEMBOUND_SANITIZE=address,undefined -DMEMBOUND_WERROR=ON >"$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
"$cmake" --build "$folder" --parallel 2 >>"$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }

# A package of the sources and this core. Python runs without site, whose hooks would find the installed core.
rm -rf "$folder/python"
mkdir -p "$folder/python/membound"
for part in src/membound/*; do
  case $part in *.so) ;; *) ln -s "$PWD/$part" "$folder/python/membound/" ;; esac
done
cp "$folder"/_core*.so "$folder/python/membound/"
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
export PYTHONPATH="$folder/python:$packages"
export LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libstdc++.so.6)"
# Some compilers put 64-byte vectors at odd places of the stack that finds uses after a return: it is off.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1
export OMP_NUM_THREADS=1
root=$PWD
cd "$folder"  # where the bytes of a failure are saved
"$python" -S -c "from membound import _core; assert _core.__file__.startswith('$folder'), _core.__file__"
exec "$python" -S "$root/fuzz/$what.py" "$@"
