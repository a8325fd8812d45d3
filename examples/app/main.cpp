// Classifies a picture (binary PPM, 8 bits), and times it: classify PICTURE.ppm [THREADS [RUNS [UPDATE]]]
// UPDATE is a file that `membound export --cpp-file` wrote. Of a network that gives masks, it counts each class's pixels.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "classifier.h"

namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The pixels; none where the file is not such a picture, and why.
std::vector<uint8_t> read_ppm(const char *path, classifier_picture &picture, const char *&why) {
  std::ifstream file(path, std::ios::binary);
  why = "there is no such file, or it cannot be read";
  if (!file || file.peek() == std::ifstream::traits_type::eof()) {
    if (file.is_open() && !file.bad()) why = "the file is empty, or a folder";
    return {};
  }
  std::string kind;
  uint32_t most = 0;
  file >> kind >> picture.width >> picture.height >> most;
  why = "not a picture in binary PPM (P6) with 8 bits";
  if (kind != "P6") return {};
  why = "the picture is truncated, or its header is not that of a binary PPM (P6)";
  if (!file) return {};
  why = "not a picture of 8 bits: the largest value of its header is not 255";
  if (most != 255) return {};
  why = "the sides of the picture are not from 1 to 16384";
  if (picture.width < 1 || picture.height < 1 || picture.width > 1 << 14 || picture.height > 1 << 14) return {};
  file.get();
  why = "the picture is truncated: it has fewer pixels than its header says";
  picture.pixel_bytes = 3;
  picture.row_bytes = 3 * picture.width;
  std::vector<uint8_t> pixels(size_t{picture.row_bytes} * picture.height);
  file.read(reinterpret_cast<char *>(pixels.data()), static_cast<std::streamsize>(pixels.size()));
  return file ? pixels : std::vector<uint8_t>{};
}

template <class Work>
double least_ms(long runs, Work work) {
  double least = 1e30;
  for (long i = 0; i < runs; ++i) {
    const double begun = now_ms();
    work();
    least = std::min(least, now_ms() - begun);
  }
  return least;
}

}  // namespace

int main(int count, char **words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s PICTURE.ppm [THREADS [RUNS [UPDATE]]]\n", words[0]);
    return 1;
  }
  char *end = nullptr;
  const long threads = count > 2 ? std::strtol(words[2], &end, 10) : 1;
  if (count > 2 && (end == words[2] || *end != '\0' || threads < 0 || threads > 256)) {
    std::fprintf(stderr, "%s: THREADS is a whole number from 0 (all cores) to 256\n", words[2]);
    return 1;
  }
  const long runs = count > 3 ? std::strtol(words[3], &end, 10) : 20;
  if (count > 3 && (end == words[3] || *end != '\0' || runs < 1 || runs > 1000000)) {
    std::fprintf(stderr, "%s: RUNS is a whole number from 1 to 1000000\n", words[3]);
    return 1;
  }
  classifier_picture picture{};
  const char *wrong = "";
  const std::vector<uint8_t> pixels = read_ppm(words[1], picture, wrong);
  picture.pixels = pixels.data();
  std::vector<uint8_t> image(classifier_input_bytes());
  std::vector<float> scores(classifier_outputs());
  if (pixels.empty()) {
    std::fprintf(stderr, "%s: %s\n", words[1], wrong);
    return 1;
  }
  if (classifier_prepare(&picture, image.data()) != 0) {
    std::fprintf(stderr, "%s: the picture cannot be resized: is there memory?\n", words[1]);
    return 1;
  }
  char why[400] = "";
  const int opened = classifier_open_update(count > 4 ? words[4] : nullptr, static_cast<int>(threads), why, sizeof why);
  if (count > 4 && opened == 0) {  // an app would go on with the network that is compiled in
    std::fprintf(stderr, "%s: %s\n", words[4], why);
    return 1;
  }
  if (opened < 0) {
    std::fprintf(stderr, "the network cannot be opened: is there memory?\n");
    return 1;
  }
  const int best = classifier_run(image.data(), scores.data());
  if (best < 0) return 1;
  std::vector<uint8_t> mask(size_t{classifier_mask_height()} * classifier_mask_width());
  if (!mask.empty()) {
    if (classifier_mask(&picture, mask.data()) != 0) return 1;
    for (int c = 0; c <= *std::max_element(mask.begin(), mask.end()); ++c) {
      const char *name = classifier_class(c);
      std::printf("class %d: %s%s%td pixels\n", c, name, *name ? ", " : "",
                  std::count(mask.begin(), mask.end(), static_cast<uint8_t>(c)));
    }
  } else {
    const char *name = classifier_class(best);
    std::printf("class %d%s%s, score %.6g\n", best, *name ? ": " : "", name, static_cast<double>(scores[static_cast<size_t>(best)]));
  }
  const double prepare = least_ms(runs, [&] { classifier_prepare(&picture, image.data()); });
  const double run = least_ms(runs, [&] { classifier_run(image.data(), nullptr); });
  std::printf("prepare %.4f ms, run %.4f ms, kernels %s, engine %s\n", prepare, run, classifier_kernels(), classifier_engine());
  return 0;
}
