# Cross-compile for x86-64 Linux; run the result under qemu-user:
#   cmake -S . -B build/x86 -DCMAKE_TOOLCHAIN_FILE=src/kernels/toolchains/x86_64-linux-gnu.cmake \
#         -DMEMBOUND_BUILD_TESTS=ON -DMEMBOUND_BUILD_PYTHON=OFF
#   cmake --build build/x86 && ctest --test-dir build/x86
# qemu emulates AVX2 from version 7.2 on, and not AVX-512. Linked dynamically: Debian's cross libm.a refers to files
# that are not there.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_CXX_COMPILER x86_64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-x86_64 -cpu max -L /usr/x86_64-linux-gnu)
# qemu 7.2 takes a gather whose index is ymm4 for one without an index: no code for it may use that register.
set(CMAKE_CXX_FLAGS_INIT -ffixed-xmm4)
