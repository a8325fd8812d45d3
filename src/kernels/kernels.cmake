# membound_kernels(TARGET): makes the kernels that run networks part of a library, each file with its own flags. The
# repository builds with it, and so does what `membound export --cpp` writes.

set(MEMBOUND_KERNELS ${CMAKE_CURRENT_LIST_DIR})

function(membound_kernels target)
  set(kernels ${MEMBOUND_KERNELS})
  foreach(name app app_file bands bytes_plain depthwise dispatch image_layout net_scalar network op op_conv op_conv_bytes
      op_depthwise_bytes op_embedding op_linear op_matmul op_others op_plan op_resize op_windows plan product product_blocked
      product_dense reader reluctance scalar slices sparse_bytes threads together weight)
    target_sources(${target} PRIVATE ${kernels}/${name}.cpp)
  endforeach()
  target_include_directories(${target} PUBLIC ${kernels})
  target_link_libraries(${target} PUBLIC Threads::Threads)

  # The wide kernels: each file with its own flags, everything else for the baseline CPU. On another compiler
  # or CPU, and for macOS universal builds (two CPUs at once), the scalar kernels remain.
  if(CMAKE_OSX_ARCHITECTURES)
    set(target_cpu "${CMAKE_OSX_ARCHITECTURES}")
  else()
    set(target_cpu "${CMAKE_SYSTEM_PROCESSOR}")
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang" AND NOT MSVC)
    # Plain loops become vectors without regard to errno and traps. GCC's scheduler before register allocation moves
    # loads up until the accumulators no longer fit into the registers.
    set(net_flags -fno-math-errno -fno-trapping-math)
    if(NOT MEMBOUND_SANITIZE)
      list(APPEND net_flags -O3)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      list(APPEND net_flags -fno-schedule-insns)
    endif()
    if(target_cpu MATCHES "^(x86_64|AMD64|amd64)$")
      target_sources(${target} PRIVATE ${kernels}/avx2.cpp ${kernels}/avx512.cpp ${kernels}/net_avx2.cpp
        ${kernels}/net_avx512.cpp ${kernels}/bytes_avx2.cpp ${kernels}/bytes_avx2_dot.cpp ${kernels}/bytes_avx512_dot.cpp)
      set(avx2_flags -mavx2 -mfma -mbmi -mbmi2 -mpopcnt -mf16c)
      set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
      if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        list(APPEND avx512_flags -Wno-uninitialized -Wno-maybe-uninitialized)  # in its own immintrin.h
      endif()
      # Where a branch lies across 32 bytes, CPUs from Skylake to Cascade Lake decode it anew each time: some kernels
      # were slower by chance.
      include(CheckCXXCompilerFlag)
      check_cxx_compiler_flag(-Wa,-mbranches-within-32B-boundaries MEMBOUND_PLACES_BRANCHES)
      if(MEMBOUND_PLACES_BRANCHES)
        list(APPEND avx2_flags -Wa,-mbranches-within-32B-boundaries)
        list(APPEND avx512_flags -Wa,-mbranches-within-32B-boundaries)
      endif()
      set_source_files_properties(${kernels}/avx2.cpp PROPERTIES COMPILE_OPTIONS "${avx2_flags}")
      set_source_files_properties(${kernels}/avx512.cpp PROPERTIES COMPILE_OPTIONS "${avx512_flags}")
      set_source_files_properties(${kernels}/net_avx2.cpp PROPERTIES COMPILE_OPTIONS "${avx2_flags};${net_flags}")
      set_source_files_properties(${kernels}/net_avx512.cpp PROPERTIES COMPILE_OPTIONS "${avx512_flags};${net_flags}")
      set_source_files_properties(${kernels}/bytes_avx2.cpp PROPERTIES COMPILE_OPTIONS "${avx2_flags};${net_flags}")
      set_source_files_properties(${kernels}/bytes_avx512_dot.cpp PROPERTIES COMPILE_OPTIONS "${avx512_flags};-mavx512vnni;${net_flags}")
      check_cxx_compiler_flag(-mavxvnni MEMBOUND_KNOWS_AVXVNNI)
      if(MEMBOUND_KNOWS_AVXVNNI)
        set(avx2_dot_flags -mavxvnni)
      endif()
      set_source_files_properties(${kernels}/bytes_avx2_dot.cpp PROPERTIES COMPILE_OPTIONS "${avx2_flags};${avx2_dot_flags};${net_flags}")
      target_compile_definitions(${target} PRIVATE MEMBOUND_X86)
    elseif(target_cpu MATCHES "^(aarch64|arm64)$")
      target_sources(${target} PRIVATE ${kernels}/neon.cpp ${kernels}/net_neon.cpp ${kernels}/bytes_neon.cpp
        ${kernels}/bytes_neon_dot.cpp)
      set_source_files_properties(${kernels}/bytes_neon.cpp PROPERTIES COMPILE_OPTIONS "${net_flags}")
      set_source_files_properties(${kernels}/bytes_neon_dot.cpp PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod;${net_flags}")
      set_source_files_properties(${kernels}/net_neon.cpp PROPERTIES COMPILE_OPTIONS "${net_flags}")
      target_compile_definitions(${target} PRIVATE MEMBOUND_NEON)
    endif()
  endif()

  # What a network takes in memory is worked out with these: the same to the last bit on every CPU, with fused
  # multiplications or without. `app` prepares images as numpy does.
  if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    foreach(name app bands bytes_plain op_conv op_conv_bytes op_depthwise_bytes op_linear plan product product_blocked product_dense together weight)
      set_source_files_properties(${kernels}/${name}.cpp PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
    endforeach()
  endif()
endfunction()
