// See classifier.h. The resize is Pillow's antialiased bilinear filter: along rows first, in fixed point.
#include "classifier.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "net.h"

#if !defined(NET_HEIGHT)
#error "this network takes no pictures: call net_run of net.h"
#elif !defined(NET_IMAGE_HEIGHT)
#error "no preprocessing in this file: net_prepare is left out; save with preprocess=..."
#elif !defined(NET_TAKES_PIXELS)
#error "this network was trained on floats: net_prepare takes no pixels; fit with uint8 images, or with pixels=..."
#endif

// Whether the network gives a class for each pixel.
#if defined(NET_OUTPUT_CHANNELS)
#define CLASSIFIER_MASKS (NET_OUTPUT_CHANNELS >= 2 && NET_OUTPUT_CHANNELS <= 256)
#else
#define CLASSIFIER_MASKS 0
#endif

namespace {

static_assert(NET_CHANNELS == 1 || NET_CHANNELS == 3, "pictures are gray or RGB");

// The images that the network was trained on; net_prepare takes its crop of them.
constexpr size_t kHeight = NET_IMAGE_HEIGHT, kWidth = NET_IMAGE_WIDTH;

constexpr int kBits = 22;  // of a weight, behind the point
constexpr size_t kLongest = 16;  // if a picture is more than 16 times as long as the network's images, only its middle is used

// One pixel of the result: which pixels it is made of, and their weights.
struct Taps {
  size_t first;
  std::vector<uint32_t> weights;
};

// The pixels from `begin` on, `count` of them, of a line that goes from `from` to `to` pixels.
std::vector<Taps> find_taps(size_t from, size_t to, size_t begin, size_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
  std::vector<Taps> found;
  for (size_t at = begin; at < begin + count; ++at) {
    const double center = (static_cast<double>(at) + 0.5) * scale;
    const auto first = static_cast<size_t>(std::max(center - reach + 0.5, 0.0));
    const size_t end = std::min(static_cast<size_t>(center + reach + 0.5), from);
    std::vector<double> heights;
    double sum = 0;
    for (size_t x = first; x < end; ++x) {
      const double away = std::abs((static_cast<double>(x) - center + 0.5) / reach);
      heights.push_back(std::max(1.0 - away, 0.0));
      sum += heights.back();
    }
    Taps taps{first, {}};
    for (double height : heights) taps.weights.push_back(static_cast<uint32_t>(0.5 + height / sum * (1 << kBits)));
    found.push_back(std::move(taps));
  }
  return found;
}

uint8_t apply(const Taps &taps, const uint8_t *line, size_t step) {
  uint32_t sum = 1u << (kBits - 1);
  line += taps.first * step;
  for (const uint32_t weight : taps.weights) {
    sum += weight * *line;
    line += step;
  }
  return static_cast<uint8_t>(std::min(sum >> kBits, 255u));
}

struct Axis {
  size_t skipped, length;     // of the picture
  size_t resized, cropped;    // the length that it gets, and where the network's image begins
  std::vector<Taps> taps;
};

// The middle of a side, where the picture is too long: `side` pixels go into `image` of them, and the other side is `other`.
Axis find_middle(size_t length, size_t other, size_t image, size_t other_image) {
  const size_t most = std::max<size_t>(kLongest * other * image / other_image, 1);
  Axis axis{};
  axis.skipped = length > most ? (length - most) / 2 : 0;
  axis.length = length - 2 * axis.skipped;
  return axis;
}

// One side of a picture that is resized by `numerator` / `denominator`, which just covers `image` pixels.
void plan(Axis &axis, size_t numerator, size_t denominator, size_t image) {
  const auto scaled = static_cast<double>(axis.length * numerator) / static_cast<double>(denominator);
  axis.resized = std::max(static_cast<size_t>(std::nearbyint(scaled)), image);
  axis.cropped = (axis.resized - image) / 2;
  axis.taps = find_taps(axis.length, axis.resized, axis.cropped, image);
}

void resize(const classifier_picture &picture, uint8_t *image) {
  Axis across = find_middle(picture.width, picture.height, kWidth, kHeight);
  Axis down = find_middle(picture.height, picture.width, kHeight, kWidth);
  const bool wide = across.length * kHeight >= down.length * kWidth;  // the height decides how large it becomes
  const size_t numerator = wide ? kHeight : kWidth, denominator = wide ? down.length : across.length;
  plan(across, numerator, denominator, kWidth);
  plan(down, numerator, denominator, kHeight);
  const size_t top = down.taps.front().first, bottom = down.taps.back().first + down.taps.back().weights.size();
  std::vector<uint8_t> rows((bottom - top) * kWidth * 3);  // as wide as the result, as many as it needs
  for (size_t y = top; y < bottom; ++y) {
    const uint8_t *line = picture.pixels + (down.skipped + y) * picture.row_bytes;
    line += across.skipped * picture.pixel_bytes;
    uint8_t *to = rows.data() + (y - top) * kWidth * 3;
    for (const Taps &taps : across.taps)
      for (size_t c = 0; c < 3; ++c) *to++ = apply(taps, line + (picture.bgra ? 2 - c : c), picture.pixel_bytes);
  }
  for (Taps taps : down.taps) {
    taps.first -= top;
    for (size_t x = 0; x < kWidth; ++x) {
      uint8_t rgb[3];
      for (size_t c = 0; c < 3; ++c) rgb[c] = apply(taps, rows.data() + x * 3 + c, kWidth * 3);
      if (NET_CHANNELS == 3) image = std::copy(rgb, rgb + 3, image);
      else *image++ = static_cast<uint8_t>(std::nearbyint(0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2]));
    }
  }
}

// A millionth of a color, rounded to the nearest of 0 to 255.
uint8_t round_millionths(int32_t value) { return static_cast<uint8_t>(std::clamp((value + 500000) / 1000000, 0, 255)); }

void convert(const classifier_frame &frame, uint8_t *rgba) {
  // In millionths. Of video, y has 219 steps and u and v 224, where full range has 255.
  const bool video = frame.video_range == 1;
  const int32_t light = video ? 1164384 : 1000000, black = video ? 16 : 0;
  const int32_t red = video ? 1596027 : 1402000, blue = video ? 2017232 : 1772000;
  const int32_t green_u = video ? 391762 : 344136, green_v = video ? 812968 : 714136;
  const size_t width = frame.width, height = frame.height;
  for (size_t y = 0; y < height; ++y) {
    const uint8_t *line = frame.y + y * frame.y_row_bytes;
    for (size_t x = 0; x < width; ++x) {
      const size_t at = y / 2 * frame.uv_row_bytes + x / 2 * frame.uv_pixel_bytes;
      const int32_t u = frame.u[at] - 128, v = frame.v[at] - 128, gray = light * (line[x] - black);
      size_t place = y * width + x;
      if (frame.turn == 90) place = x * height + height - 1 - y;
      if (frame.turn == 180) place = (height - 1 - y) * width + width - 1 - x;
      if (frame.turn == 270) place = (width - 1 - x) * height + y;
      uint8_t *to = rgba + 4 * place;
      to[0] = round_millionths(gray + red * v);
      to[1] = round_millionths(gray - green_u * u - green_v * v);
      to[2] = round_millionths(gray + blue * u);
      to[3] = 255;
    }
  }
}

std::mutex opening;
net *network = nullptr;  // kept for as long as the program runs
std::string opened_file;  // whose network it is; empty: the one that is compiled in

int open_once(const char *path, int threads, char *why, size_t why_size) {
  const std::lock_guard<std::mutex> lock(opening);
  const std::string file = path == nullptr ? "" : path;
  if (network != nullptr) {
    if (!file.empty() && file == opened_file) return 1;
    if (path != nullptr && why != nullptr) std::snprintf(why, why_size, "another network is open already: the first call decides");
    return 0;
  }
  if (path != nullptr) network = net_open_file(path, threads, why, why_size);
  if (network != nullptr) {
    opened_file = file;
    return 1;
  }
  network = net_open(threads);
  return network == nullptr ? -1 : 0;
}

}  // namespace

int classifier_open(int threads) { return classifier_open_update(nullptr, threads, nullptr, 0) < 0 ? -1 : 0; }

int classifier_open_update(const char *path, int threads, char *why, size_t why_size) {
  try {
    return open_once(path, threads, why, why_size);
  } catch (const std::exception &) {  // no exception may reach a caller in C
    return -1;
  }
}

uint32_t classifier_input_bytes(void) { return kHeight * kWidth * NET_CHANNELS; }

uint32_t classifier_outputs(void) { return NET_OUTPUTS; }

int classifier_prepare(const classifier_picture *picture, uint8_t *image) {
  const bool known = picture->pixel_bytes == 3 || picture->pixel_bytes == 4;
  if (picture->pixels == nullptr || picture->width == 0 || picture->height == 0 || !known || picture->bgra > 1) return -1;
  if (picture->row_bytes < uint64_t{picture->width} * picture->pixel_bytes) return -1;
  try {
    resize(*picture, image);
  } catch (const std::bad_alloc &) {
    return -1;
  }
  return 0;
}

int classifier_convert(const classifier_frame *frame, uint8_t *rgba) {
  const bool turned = frame->turn <= 270 && frame->turn % 90 == 0, alternate = frame->uv_pixel_bytes == 2;
  if (frame->y == nullptr || frame->u == nullptr || frame->v == nullptr || !turned || frame->video_range > 1) return -1;
  if (frame->width == 0 || frame->height == 0 || (frame->uv_pixel_bytes != 1 && !alternate)) return -1;
  const uint64_t last = (uint64_t{frame->width} - 1) / 2 * frame->uv_pixel_bytes;  // of a row of u, or of v
  if (frame->y_row_bytes < frame->width || frame->uv_row_bytes <= last) return -1;
  convert(*frame, rgba);
  return 0;
}

const char *classifier_kernels(void) { return net_kernels(); }

const char *classifier_engine(void) {
  const std::lock_guard<std::mutex> lock(opening);
  return network == nullptr ? NET_ENGINE : net_engine(network);
}

const char *classifier_class(int32_t best) {
#ifdef NET_CLASSES
  const char *name = best < 0 ? nullptr : net_class(static_cast<uint32_t>(best));
  return name == nullptr ? "" : name;
#else
  static_cast<void>(best);
  return "";
#endif
}

int32_t classifier_run(const uint8_t *image, float *scores) {
  try {
    std::vector<float> input(NET_INPUT_FLOATS), output(NET_OUTPUTS);
    const ptrdiff_t pixel = NET_CHANNELS, row = kWidth * NET_CHANNELS;  // RGBRGB, or one byte each
    if (classifier_open(1) != 0) return -1;
    if (net_prepare_for(network, image, kHeight, kWidth, 1, row, pixel, input.data()) != NET_OK) return -1;
    if (net_run(network, input.data(), output.data()) != NET_OK) return -1;
    if (scores != nullptr) std::copy(output.begin(), output.end(), scores);
#if CLASSIFIER_MASKS
    return 0;
#else
    return static_cast<int32_t>(net_best(output.data()));
#endif
  } catch (const std::bad_alloc &) {
    return -1;
  }
}

int classifier_mask(const classifier_picture *picture, uint8_t *mask) {
#if CLASSIFIER_MASKS
  std::unique_ptr<float[]> scores(new (std::nothrow) float[NET_OUTPUTS]);
  if (scores == nullptr || classifier_classify(picture, scores.get()) != 0) return -1;
  return net_mask(scores.get(), mask) == NET_OK ? 0 : -1;
#else
  (void)picture;
  (void)mask;
  return -1;
#endif
}

uint32_t classifier_mask_width(void) {
#if CLASSIFIER_MASKS
  return NET_OUTPUT_WIDTH;
#else
  return 0;
#endif
}

uint32_t classifier_mask_height(void) {
#if CLASSIFIER_MASKS
  return NET_OUTPUT_HEIGHT;
#else
  return 0;
#endif
}

int32_t classifier_classify(const classifier_picture *picture, float *scores) {
  std::unique_ptr<uint8_t[]> image(new (std::nothrow) uint8_t[classifier_input_bytes()]);
  if (image == nullptr || classifier_prepare(picture, image.get()) != 0) return -1;
  return classifier_run(image.get(), scores);
}
