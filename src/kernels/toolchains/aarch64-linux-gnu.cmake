# Cross-compile for aarch64 Linux; run the result under qemu-user:
#   cmake -S . -B build/arm -DCMAKE_TOOLCHAIN_FILE=src/kernels/toolchains/aarch64-linux-gnu.cmake \
#         -DMEMBOUND_BUILD_TESTS=ON -DMEMBOUND_BUILD_PYTHON=OFF
#   cmake --build build/arm && ctest --test-dir build/arm
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
