"""The text of exported C++ that does not depend on the network. `net` and `NET_` become the chosen prefix."""

HEADER = """/* A network that membound wrote: include this, and link the library that CMakeLists.txt builds. Plain C,
 * for C++, JNI, Swift and all else that calls C. No function throws; all may be called from any thread. */
#ifndef NET_H
#define NET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef NET_API
#define NET_API __attribute__((visibility("default")))
#endif

@macros@
/* What functions return. */
enum {
  NET_OK = 0,
  NET_BAD_ARGUMENT = 1, /* a null pointer, or images of another size */
  NET_NO_MEMORY = 2,
  NET_OUT_OF_RANGE = 3, /* an input index outside the network's range */
  NET_FAILED = 4        /* anything else: please report it */
};

/* What a code means, in words. */
NET_API const char *net_error(int code);

/* A network that is ready to run: its weights are constants of the program, its working memory is its own. */
typedef struct net net;

/* Uses `threads` threads per call, from 1 to 256; 0 takes all cores. Returns null if memory is short or the thread
 * count is invalid. */
NET_API net *net_open(int threads);

/* The same with working memory for `max_batch` inputs at once: larger batches run in parts of that many. */
NET_API net *net_open_batch(int threads, size_t max_batch);

/* A network of a file instead of the one that is compiled in: an update without a new release of the app. membound's
 * export_cpp_file writes it. It must take and give the same numbers, be for images of the same size and the same
 * classes, and have the format NET_FILE_FORMAT; its layers, weights and engine may differ. Null if it cannot be opened,
 * and why, in words, in `why`, which has room for `why_size` bytes and may be null. */
NET_API net *net_open_file(const char *path, int threads, char *why, size_t why_size);

/* The same of bytes in memory, which are copied. */
NET_API net *net_open_bytes(const void *data, size_t size, int threads, char *why, size_t why_size);

/* Null is allowed. */
NET_API void net_close(net *network);

/* Bytes that it takes: weights, tables and working memory. */
NET_API size_t net_memory(const net *network);

/* How this network computes, "float" or "int8": one of a file as that was exported. Null gives "". */
NET_API const char *net_engine(const net *network);

/* Which network this is, for logs and crash reports: the first 16 digits of its model file's SHA-256, which
 * `membound export` prints, and sha256sum, too. Null gives "". */
NET_API const char *net_id(const net *network);

/* The instruction set of the kernels that run here: "avx512", "avx2", "neon", or "scalar", the slowest. */
NET_API const char *net_kernels(void);

@run@@classes@
@prepare@
#ifdef __cplusplus
}
#endif
#endif
"""
RUN = """/* One input of NET_INPUT_FLOATS numbers, which are prepared, gives NET_OUTPUTS numbers.@takes@
 * One network runs one call at a time; to run calls at the same time, open it once for each thread. */
NET_API int net_run(net *network, const float *input, float *output);

/* `count` inputs, one after another, give as many outputs. */
NET_API int net_run_batch(net *network, const float *inputs, size_t count, float *outputs);
"""
BEST = """
/* The index of the largest output. */
NET_API uint32_t net_best(const float *output);
"""
MASK = """
/* The class of each pixel, that of the largest score: NET_OUTPUT_HEIGHT x NET_OUTPUT_WIDTH numbers, row by row. The
 * score of class c at row y, column x is output[(c * NET_OUTPUT_HEIGHT + y) * NET_OUTPUT_WIDTH + x]. */
NET_API int net_mask(const float *output, uint8_t *mask);
"""
RUN_OF_MANY = """/* An array for each input and each output, in the order above.@takes@
 * One network runs one call at a time; to run calls at the same time, open it once for each thread. */
NET_API int net_run(net *network, const float *const *inputs, float *const *outputs);

/* `count` examples, one after another in each array. */
NET_API int net_run_batch(net *network, const float *const *inputs, size_t count, float *const *outputs);
"""
TAKES_WHOLE = """
 * Whole numbers are given as floats; one that an embedding does not have is NET_OUT_OF_RANGE."""
CLASSES = """
/* The name of a class, in UTF-8; null if there is none of this number. */
NET_API const char *net_class(uint32_t index);
"""
NO_PREPARE = """/* The file does not say how inputs are prepared: give the network what it was given in training. */
"""
PREPARE_IMAGE = """/* @what@ become what the network takes, as net.preprocess does it in Python. The number of channel
 * c, row y, column x is at pixels[c * channel_step + y * row_step + x * pixel_step]. Images of another size are
 * NET_BAD_ARGUMENT: allowed are @size@. */
NET_API int net_prepare(const uint8_t *pixels, size_t height, size_t width, ptrdiff_t channel_step, ptrdiff_t row_step,
                        ptrdiff_t pixel_step, float *input);

/* The same as this network needs it: one of a file may have another mean or scale than the one that is compiled in. */
NET_API int net_prepare_for(const net *network, const uint8_t *pixels, size_t height, size_t width,
                            ptrdiff_t channel_step, ptrdiff_t row_step, ptrdiff_t pixel_step, float *input);

/* Channels side by side, such as RGBRGB, without gaps: height x width x NET_CHANNELS numbers. */
NET_API int net_prepare_hwc(const uint8_t *pixels, size_t height, size_t width, float *input);

/* One channel after another: NET_CHANNELS x height x width numbers. */
NET_API int net_prepare_chw(const uint8_t *pixels, size_t height, size_t width, float *input);
"""
PREPARE_NUMBERS = """/* Numbers as in training, NET_INPUT_FLOATS of them, become what the network takes. */
NET_API int net_prepare(const uint8_t *numbers, float *input);

/* The same as this network needs it: one of a file may have another mean or scale than the one that is compiled in. */
NET_API int net_prepare_for(const net *network, const uint8_t *numbers, float *input);
"""

BEGINNING = """// The plan of a network: made by membound, not meant to be edited.
#include "net.h"

#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>

#include "membound/app.h"
#include "membound/dispatch.h"

extern const uint64_t net_weights[];

"""
API = """struct net {
  membound::App app;
};

namespace {

// What body() throws, as a code.
template <class Body>
int code_of(const Body& body) noexcept {
  try {
    body();
    return NET_OK;
  } catch (const std::bad_alloc&) {
    return NET_NO_MEMORY;
  } catch (const std::out_of_range&) {
    return NET_OUT_OF_RANGE;
  } catch (...) {
    return NET_FAILED;
  }
}

// A network of which open() makes something; null where it throws, and `why`.
template <class Open>
net* opened_by(const Open& open, char* why, size_t why_size) noexcept {
  const char* says = "there is not enough memory";
  try {
    std::unique_ptr<net> opened(new net);
    open(opened->app);
    return opened.release();
  } catch (const std::bad_alloc&) {
    if (why != nullptr) std::snprintf(why, why_size, "%s", says);
  } catch (const std::exception& error) {
    if (why != nullptr) std::snprintf(why, why_size, "%s", error.what());
  }
  return nullptr;
}

}  // namespace

const char* net_error(int code) {
  switch (code) {
    case NET_OK: return "all is well";
    case NET_BAD_ARGUMENT: return "a null pointer, or an image of another size than the network takes";
    case NET_NO_MEMORY: return "there is not enough memory";
    case NET_OUT_OF_RANGE: return "an input holds a number that an embedding does not have";
    default: return "the network cannot run";
  }
}

net* net_open(int threads) { return net_open_batch(threads, 1); }

net* net_open_batch(int threads, size_t max_batch) {
  net* opened = nullptr;
  const int code = code_of([&] {
    opened = new net{membound::App(net_weights, weight_bytes, preparation, NET_ENGINE, NET_ID)};
    plan(opened->app);
    opened->app.start(input_shape, outputs, threads, max_batch);
  });
  if (code == NET_OK) return opened;
  delete opened;
  return nullptr;
}

net* net_open_file(const char* path, int threads, char* why, size_t why_size) {
  return opened_by(
      [&](membound::App& app) {
        const auto bytes = membound::read_file(path);
        app.open(bytes.data(), bytes.size(), needed, threads);
      },
      why, why_size);
}

net* net_open_bytes(const void* data, size_t size, int threads, char* why, size_t why_size) {
  return opened_by([&](membound::App& app) { app.open(data, size, needed, threads); }, why, why_size);
}

void net_close(net* network) { delete network; }

size_t net_memory(const net* network) {
  size_t bytes = 0;
  if (network != nullptr) code_of([&] { bytes = network->app.memory_bytes(); });
  return bytes;
}

const char* net_engine(const net* network) { return network == nullptr ? "" : network->app.engine().c_str(); }

const char* net_id(const net* network) { return network == nullptr ? "" : network->app.id().c_str(); }

const char* net_kernels() {
  const char* name = "scalar";
  code_of([&] { name = membound::chosen_kernels().name; });
  return name;
}

"""
API_RUN = """int net_run(net* network, const float* input, float* output) {
  return net_run_batch(network, input, 1, output);
}

int net_run_batch(net* network, const float* inputs, size_t count, float* outputs) {
  if (network == nullptr || inputs == nullptr || outputs == nullptr) return NET_BAD_ARGUMENT;
  return code_of([&] { network->app.network().run(inputs, count, outputs); });
}
"""
API_BEST = """
uint32_t net_best(const float* output) {
  uint32_t best = 0;
  for (uint32_t index = 1; output != nullptr && index < NET_OUTPUTS; ++index)
    if (output[index] > output[best]) best = index;
  return best;
}
"""
API_MASK = """
int net_mask(const float* output, uint8_t* mask) {
  if (output == nullptr || mask == nullptr) return NET_BAD_ARGUMENT;
  const size_t pixels = (size_t)NET_OUTPUT_HEIGHT * NET_OUTPUT_WIDTH;
  for (size_t pixel = 0; pixel < pixels; ++pixel) {
    size_t best = 0;
    for (size_t c = 1; c < NET_OUTPUT_CHANNELS; ++c)
      if (output[c * pixels + pixel] > output[best * pixels + pixel]) best = c;
    mask[pixel] = (uint8_t)best;
  }
  return NET_OK;
}
"""
API_RUN_MANY = """int net_run(net* network, const float* const* inputs, float* const* outputs) {
  return net_run_batch(network, inputs, 1, outputs);
}

int net_run_batch(net* network, const float* const* inputs, size_t count, float* const* outputs) {
  if (network == nullptr || inputs == nullptr || outputs == nullptr) return NET_BAD_ARGUMENT;
  for (size_t i = 0; i < NET_INPUT_ARRAYS; ++i)
    if (inputs[i] == nullptr) return NET_BAD_ARGUMENT;
  for (size_t i = 0; i < NET_OUTPUT_ARRAYS; ++i)
    if (outputs[i] == nullptr) return NET_BAD_ARGUMENT;
  return code_of([&] { network->app.network().run(inputs, count, outputs); });
}
"""
API_CLASSES = """
const char* net_class(uint32_t index) { return index < NET_CLASSES ? class_names[index] : nullptr; }
"""
API_PREPARE_IMAGE = """
int net_prepare(const uint8_t* pixels, size_t height, size_t width, ptrdiff_t channel_step, ptrdiff_t row_step,
                ptrdiff_t pixel_step, float* input) {
  if (pixels == nullptr || input == nullptr) return NET_BAD_ARGUMENT;
  const membound::Steps steps{channel_step, row_step, pixel_step};
  return membound::prepare(preparation, pixels, height, width, steps, input) ? NET_OK : NET_BAD_ARGUMENT;
}

int net_prepare_for(const net* network, const uint8_t* pixels, size_t height, size_t width, ptrdiff_t channel_step,
                    ptrdiff_t row_step, ptrdiff_t pixel_step, float* input) {
  if (network == nullptr || pixels == nullptr || input == nullptr) return NET_BAD_ARGUMENT;
  const membound::Steps steps{channel_step, row_step, pixel_step};
  const bool fits = membound::prepare(network->app.preparation(), pixels, height, width, steps, input);
  return fits ? NET_OK : NET_BAD_ARGUMENT;
}

int net_prepare_hwc(const uint8_t* pixels, size_t height, size_t width, float* input) {
  return net_prepare(pixels, height, width, 1, static_cast<ptrdiff_t>(NET_CHANNELS * width), NET_CHANNELS, input);
}

int net_prepare_chw(const uint8_t* pixels, size_t height, size_t width, float* input) {
  const auto row = static_cast<ptrdiff_t>(width);
  return net_prepare(pixels, height, width, static_cast<ptrdiff_t>(height) * row, row, 1, input);
}
"""
API_PREPARE_NUMBERS = """
int net_prepare(const uint8_t* numbers, float* input) {
  if (numbers == nullptr || input == nullptr) return NET_BAD_ARGUMENT;
  const membound::Preparation& how = preparation;
  const membound::Steps steps{static_cast<ptrdiff_t>(how.width), 0, 1};
  return membound::prepare(how, numbers, how.height, how.width, steps, input) ? NET_OK : NET_BAD_ARGUMENT;
}

int net_prepare_for(const net* network, const uint8_t* numbers, float* input) {
  if (network == nullptr || numbers == nullptr || input == nullptr) return NET_BAD_ARGUMENT;
  const membound::Preparation& how = network->app.preparation();
  const membound::Steps steps{static_cast<ptrdiff_t>(how.width), 0, 1};
  return membound::prepare(how, numbers, how.height, how.width, steps, input) ? NET_OK : NET_BAD_ARGUMENT;
}
"""

MAIN_BEGINNING = """#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "net.h"
#include "net_test.h"

// The least time of many runs, in milliseconds.
template <class Run>
static double least_ms(const Run& run) {
  using Clock = std::chrono::steady_clock;
  double least = 1e9;
  const Clock::time_point begun = Clock::now();
  for (int i = 0; i < 1000 && (i < 3 || Clock::now() - begun < std::chrono::seconds(1)); ++i) {
    const Clock::time_point start = Clock::now();
    run();
    least = std::min(least, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return least;
}

// Which kernels run: a build without the flags of CMakeLists.txt or Makefile has the scalar ones alone.
static void tell_kernels() {
  const bool slow = std::strcmp(net_kernels(), "scalar") == 0;
  std::printf("kernels: %s%s\\n", net_kernels(), slow ? ", the slowest: build with CMakeLists.txt or Makefile" : "");
}

// The self test; what the program returns.
static int check(int threads) {
  double worst = 0;
  const int wrong = net_selftest(threads, &worst);
  if (wrong < 0) {
    std::fprintf(stderr, "self test: the network cannot be opened or run\\n");
    return 1;
  }
  std::printf("self test: %d of %d outputs are wrong, largest difference: %.2g, relative to the largest output "
              "(%g allowed)\\n",
              wrong, NET_TEST_OUTPUTS, worst, NET_TEST_TOLERANCE);
  tell_kernels();
  return wrong != 0;
}

static bool is_check(int argc, char** argv) { return argc > 1 && std::strcmp(argv[1], "--check") == 0; }

"""
MAIN = """// Runs the network on @what@ in a file, prints what it says and how long it takes.
//
//   main [FILE [THREADS]]       without a file, on zeros
//   main --check [THREADS]      the self test of net_test.h
@beginning@int main(int argc, char** argv) {
  if (is_check(argc, argv)) return check(argc > 2 ? std::atoi(argv[2]) : 1);
  std::vector<@number@> numbers(@count@);
  std::vector<float> input(NET_INPUT_FLOATS), output(NET_OUTPUTS);
  if (argc > 1) {
    std::FILE* file = std::fopen(argv[1], "rb");
    const size_t found = file == nullptr ? 0 : std::fread(numbers.data(), sizeof numbers[0], numbers.size(), file);
    if (file != nullptr) std::fclose(file);
    if (found != numbers.size()) {
      std::fprintf(stderr, "%s: %zu numbers of type @number@ are needed\\n", argv[1], numbers.size());
      return 1;
    }
  }
  net* network = net_open(argc > 2 ? std::atoi(argv[2]) : 1);
  if (network == nullptr) {
    std::fprintf(stderr, "the network cannot be opened: is there memory, and are the threads from 0 to 256?\\n");
    return 1;
  }
  int code = @prepare@;
  if (code == NET_OK) code = net_run(network, input.data(), output.data());
  if (code != NET_OK) {
    std::fprintf(stderr, "%s\\n", net_error(code));
    return 1;
  }
@tell@  const double ms = least_ms([&] { net_run(network, input.data(), output.data()); });
  std::printf("%.4f ms, %zu bytes of memory\\n", ms, net_memory(network));
  tell_kernels();
  net_close(network);
  return 0;
}
"""
TELL_BEST = """  const uint32_t best = net_best(output.data());
  std::printf("best %u%s%s, score %g\\n", (unsigned)best, @name@, output[best]);
"""
TELL_MASK = """  std::vector<uint8_t> mask(NET_OUTPUT_HEIGHT * NET_OUTPUT_WIDTH);
  net_mask(output.data(), mask.data());
  for (size_t c = 0; c < NET_OUTPUT_CHANNELS; ++c)
    std::printf("class %zu: %zu pixels\\n", c, (size_t)std::count(mask.begin(), mask.end(), (uint8_t)c));
"""
MAIN_OF_MANY = """// Runs the network on zeros, and prints how long it takes: main [THREADS]
// The self test of net_test.h: main --check [THREADS]
@beginning@int main(int argc, char** argv) {
  if (is_check(argc, argv)) return check(argc > 2 ? std::atoi(argv[2]) : 1);
  const size_t takes[] = {@takes@}, gives[] = {@gives@};
  std::vector<std::vector<float>> inputs, outputs;
  for (size_t floats : takes) inputs.emplace_back(floats);
  for (size_t floats : gives) outputs.emplace_back(floats);
  std::vector<const float*> from;
  std::vector<float*> to;
  for (const auto& each : inputs) from.push_back(each.data());
  for (auto& each : outputs) to.push_back(each.data());
  net* network = net_open(argc > 1 ? std::atoi(argv[1]) : 1);
  const int code = network == nullptr ? NET_NO_MEMORY : net_run(network, from.data(), to.data());
  if (code != NET_OK) {
    std::fprintf(stderr, "%s\\n", net_error(code));
    return 1;
  }
  const double ms = least_ms([&] { net_run(network, from.data(), to.data()); });
  std::printf("%.4f ms, %zu bytes of memory\\n", ms, net_memory(network));
  tell_kernels();
  net_close(network);
  return 0;
}
"""
