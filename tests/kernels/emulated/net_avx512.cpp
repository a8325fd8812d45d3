// The kernels of AVX-512 on the emulated intrinsics beside this file, under another name.
#define avx512_net_kernels emulated_avx512_net_kernels
#include "../../../src/kernels/net_avx512.cpp"
