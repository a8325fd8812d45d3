"""How exported C++ is built: by CMake, or by a Makefile with the same flags, which a test compares."""

CMAKE = """# add_subdirectory() this folder and link `net`, or build it alone, with the example main.cpp.
cmake_minimum_required(VERSION 3.13)
project(net CXX)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(NOT TARGET membound_kernels)  # another network of the same program may have brought them
  include(${CMAKE_CURRENT_SOURCE_DIR}/membound/kernels.cmake)
  add_library(membound_kernels STATIC)
  membound_kernels(membound_kernels)
  target_compile_features(membound_kernels PUBLIC cxx_std_17)
  target_compile_options(membound_kernels PRIVATE $<$<CONFIG:Debug>:-O2>)  # an app's debug build is as fast
  set_target_properties(membound_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
endif()

# Static, or with -DBUILD_SHARED_LIBS=ON shared. A static library's self test is in a program only if it is called.
add_library(net net.cpp net_test.cpp weights.cpp)
target_link_libraries(net PRIVATE membound_kernels)
target_include_directories(net PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(net PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON)

if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR AND NOT CMAKE_SYSTEM_NAME STREQUAL "iOS")
  add_executable(main main.cpp)
  target_link_libraries(main PRIVATE net)
  target_compile_features(main PRIVATE cxx_std_17)
  enable_testing()
  add_test(NAME selftest COMMAND main --check)
endif()
"""

MAKEFILE = """# Builds without CMake: make, make check. For another CPU: make CXX=aarch64-linux-gnu-g++.
# With a build system of your own, give each file the flags that it has here: kernels need them.
AR ?= ar
BUILD ?= build-make
CXXFLAGS ?= -O3 -DNDEBUG
TARGET := $(shell $(CXX) -dumpmachine)
ALL := -std=c++17 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -pthread -I. -Imembound

AVX2 := -mavx2 -mfma -mbmi -mbmi2 -mpopcnt -mf16c
AVX512 := $(AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl
FAST := -fno-math-errno -fno-trapping-math -O3
ifeq ($(findstring clang,$(shell $(CXX) --version)),)
FAST += -fno-schedule-insns
AVX512 += -Wno-uninitialized -Wno-maybe-uninitialized
endif

X86 := avx2 avx512 net_avx2 net_avx512 bytes_avx2 bytes_avx2_dot bytes_avx512_dot
ARM := neon net_neon bytes_neon bytes_neon_dot
KERNELS := $(filter-out $(X86) $(ARM),$(patsubst membound/%.cpp,%,$(wildcard membound/*.cpp)))
ifneq ($(filter x86_64% amd64%,$(TARGET)),)
KERNELS += $(X86)
ALL += -DMEMBOUND_X86
PLACES := -Wa,-mbranches-within-32B-boundaries
ifeq ($(shell echo | $(CXX) -mavxvnni -x c++ -c - -o /dev/null 2>/dev/null && echo yes),yes)
AVXVNNI := -mavxvnni
endif
ifeq ($(shell echo | $(CXX) $(PLACES) -x c++ -c - -o /dev/null 2>/dev/null && echo yes),yes)
AVX2 += $(PLACES)
AVX512 += $(PLACES)
endif
else ifneq ($(filter aarch64% arm64%,$(TARGET)),)
KERNELS += $(ARM)
ALL += -DMEMBOUND_NEON
endif

OF_avx2 = $(AVX2)
OF_avx512 = $(AVX512)
OF_net_avx2 = $(AVX2) $(FAST)
OF_net_avx512 = $(AVX512) $(FAST)
OF_bytes_avx2 = $(AVX2) $(FAST)
OF_bytes_avx2_dot = $(AVX2) $(AVXVNNI) $(FAST)
OF_bytes_avx512_dot = $(AVX512) -mavx512vnni $(FAST)
OF_net_neon = $(FAST)
OF_bytes_neon = $(FAST)
OF_bytes_neon_dot = -march=armv8.2-a+dotprod $(FAST)
# These compute how much memory a network takes, and prepare images, to the last bit alike on every CPU.
EXACT := app bands bytes_plain op_conv op_conv_bytes op_depthwise_bytes op_linear plan product product_blocked \\
    product_dense together weight
$(foreach name,$(EXACT),$(eval OF_$(name) = -ffp-contract=off))

LIBRARY := $(BUILD)/libnet.a
OBJECTS := $(KERNELS:%=$(BUILD)/membound/%.o) $(BUILD)/net.o $(BUILD)/net_test.o $(BUILD)/weights.o

$(BUILD)/main: $(BUILD)/main.o $(LIBRARY)
\t$(CXX) $(CXXFLAGS) -pthread $(LDFLAGS) $^ -o $@

$(LIBRARY): $(OBJECTS)
\trm -f $@
\t$(AR) rcs $@ $^

$(BUILD)/membound/%.o: membound/%.cpp $(wildcard membound/*.h membound/*.inc) Makefile
\t@mkdir -p $(@D)
\t$(CXX) $(ALL) $(CXXFLAGS) $(OF_$*) -c $< -o $@

$(BUILD)/%.o: %.cpp net.h net_test.h Makefile
\t@mkdir -p $(@D)
\t$(CXX) $(ALL) $(CXXFLAGS) -c $< -o $@

check: $(BUILD)/main
\t$(BUILD)/main --check

clean:
\trm -rf $(BUILD)

.PHONY: check clean
"""


def makefile_text(prefix: str) -> str:
    """The Makefile of a network of this name; kernels, such as net_avx2, keep theirs.

    >>> "libcat.a" in makefile_text("cat"), "net_avx2" in makefile_text("cat")
    (True, True)
    """
    text = MAKEFILE
    for name in ("libnet.a", "/net.o", "/net_test.o", " net.h", " net_test.h"):
        text = text.replace(name, name.replace("net", prefix))
    return text
