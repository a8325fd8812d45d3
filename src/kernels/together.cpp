#include "together.h"

#include <algorithm>
#include <cmath>
#include <iterator>


#include "depthwise.h"

namespace membound {
namespace {

// What steps take, in cycles: a multiplication whose pixels come from the first cache, or from so many lines of the second;
constexpr struct { size_t lines; double cycles; } kLoads[] = {{448, 0.57}, {1024, 0.7}, {2048, 0.9}};
constexpr double kFar = 1.25;                 // or from further away;
constexpr double kNonzero = 1, kLatency = 4;  // one more of a row, with its few or many pixels;
constexpr double kSum = 3, kRow = 25;         // a vector of sums to the second cache or from there; a row's part of a block;
constexpr double kDecoded = 6;                // an entry that is decoded
constexpr double kLaid = 3, kParted = 15;     // a vector that is laid out: of images side by side, or not
constexpr size_t kBlockLines[] = {384, 800, 1536, size_t{1} << 30};  // of a block of channels: to choose from
constexpr size_t kStripLines = 8192;          // of all channels, where whole rows of tiles are laid out at once
constexpr size_t kSumsAtOnce = 98304;         // floats that wait in the second cache
constexpr size_t kEntriesAtOnce = 262144;     // that are decoded at once: read in their order, they may come from far away
constexpr size_t kCrowded = 1024;             // floats this far apart are in each other's place in the first cache
constexpr size_t kRowsAtOnce = 16;            // of the weight, between two looks ahead
constexpr size_t kDepthwiseFloats = 6144;     // of a channel that are laid out at once


size_t reach_h(const Window& window) { return static_cast<size_t>(window.dilation_h * (window.kernel_h - 1)); }
size_t reach_w(const Window& window) { return static_cast<size_t>(window.dilation_w * (window.kernel_w - 1)); }
size_t image_rows_of(const Window& window, size_t rows) { return (rows - 1) * static_cast<size_t>(window.stride_h) + reach_h(window) + 1; }
size_t planes_of(const Window& window) { return std::min(static_cast<size_t>(window.stride_w), reach_w(window) + 1); }
size_t pitch_of(const Window& window, size_t across) { return across + reach_w(window) / static_cast<size_t>(window.stride_w); }

// Where the places of a window read in the patches of channels `step` floats apart.
void place_window(const Window& window, size_t plane, size_t pitch, size_t lanes, size_t channels, size_t step, int32_t* offsets) {
  const auto stride = static_cast<size_t>(window.stride_w);
  for (size_t channel = 0; channel < channels; ++channel)
    for (size_t i = 0; i < static_cast<size_t>(window.kernel_h); ++i)
      for (size_t j = 0; j < static_cast<size_t>(window.kernel_w); ++j) {
        const size_t down = i * static_cast<size_t>(window.dilation_h), across = j * static_cast<size_t>(window.dilation_w);
        *offsets++ = static_cast<int32_t>(channel * step + across % stride * plane + (down * pitch + across / stride) * lanes);
      }
}

// What the outputs from a row and a column on read.
Patch patch_for(const Window& window, const Maps& maps, size_t row, size_t rows, size_t column, size_t columns, size_t pitch,
                size_t plane) {
  Patch patch{};
  patch.h = static_cast<int>(maps.height);
  patch.w = static_cast<int>(maps.width);
  patch.top = static_cast<int>(row) * window.stride_h - window.pad_top;
  patch.left = static_cast<int>(column) * window.stride_w - window.pad_left;
  patch.rows = static_cast<int>(image_rows_of(window, rows));
  patch.columns = static_cast<int>((columns - 1) * static_cast<size_t>(window.stride_w) + reach_w(window) + 1);
  patch.stride = window.stride_w;
  patch.planes = static_cast<int>(planes_of(window));
  patch.pitch = pitch;
  patch.plane = plane;
  return patch;
}

// What will be read of some channels: it comes from far away, so it is asked for bit by bit, while there is other work.
class Ahead {
 public:
  Ahead(const float* x, size_t channels, size_t channel_step, const Patch& patch, size_t lanes)
      : from_(x), lanes_(lanes), row_step_(static_cast<size_t>(patch.w) * lanes), channel_step_(channel_step) {
    const int top = std::clamp(patch.top, 0, patch.h), left = std::clamp(patch.left, 0, patch.w);
    const int rows = std::clamp(patch.top + patch.rows, top, patch.h) - top;
    from_ += (static_cast<size_t>(top) * static_cast<size_t>(patch.w) + static_cast<size_t>(left)) * lanes;
    columns_ = static_cast<size_t>(std::clamp(patch.left + patch.columns, left, patch.w) - left);
    rows_ = static_cast<size_t>(rows);
    all_ = channels * rows_;
  }

  // So that by then `part` of `parts` have been asked for.
  void fetch(size_t part, size_t parts) {
    for (const size_t end = all_ * part / parts; done_ < end; ++done_) {
      const float* row = from_ + done_ / rows_ * channel_step_ + done_ % rows_ * row_step_;
      for (size_t c = 0; c < columns_; ++c) __builtin_prefetch(row + c * lanes_, 0, 2);
    }
  }

 private:
  const float* from_;
  size_t lanes_, row_step_, channel_step_, rows_, columns_, all_, done_ = 0;
};

}  // namespace

TogetherProduct::TogetherProduct(const Weight& weight, const Window& window, const Maps& maps, size_t groups, bool parted,
                                 const Traits& traits)
    : weight_(weight), window_(window), maps_(maps), groups_(groups), rows_(weight.rows() / groups),
      lanes_(static_cast<size_t>(traits.width)), parted_(parted) {
  const bool points = window.kernel_h * window.kernel_w == 1 && window.stride_h == 1 && window.stride_w == 1 &&
                      window.pad_top == 0 && window.pad_left == 0 && maps.height == maps.out_h && maps.width == maps.out_w;
  if (points) {  // one row of pixels, read where they lie
    maps_.width = maps_.out_w = maps.height * maps.width;
    maps_.height = maps_.out_h = 1;
    in_place_ = !parted && maps_.width * lanes_ % kCrowded != 0;
  }
  if (rows_ == 0 || groups_ * maps_.channels * maps_.height * maps_.width * lanes_ > kMostOffset) return;
  find_plan();
}

// Of all shapes of a tile, and of blocks, what takes least.
void TogetherProduct::find_plan() {
  for (size_t rows = 1; rows <= std::min<size_t>(kMostOfTile, maps_.out_h); ++rows)
    for (size_t across = 1; rows * across <= kMostOfTile && across <= maps_.out_w; ++across)
      for (size_t lines : kBlockLines) {
        const Plan plan = plan_tiles(rows, across, lines);
        if (plan.rows > 0 && (plan_.rows == 0 || plan.cycles < plan_.cycles)) plan_ = plan;
      }
}

TogetherProduct::Plan TogetherProduct::plan_tiles(size_t rows, size_t across, size_t block_lines) const {
  const size_t down = divide_up(maps_.out_h, rows), right = divide_up(maps_.out_w, across), channels = maps_.channels;
  if (divide_up(maps_.out_h, down) != rows || divide_up(maps_.out_w, right) != across) return {};  // no tile is so large
  Plan plan;
  plan.rows = rows;
  plan.across = across;
  plan.planes = planes_of(window_);
  plan.image_rows = image_rows_of(window_, rows);
  plan.pitch = pitch_of(window_, across);
  const size_t lines = plan.planes * plan.image_rows * plan.pitch;  // of a channel that a tile reads
  if (lines > kMostOffset / lanes_ / channels) return {};
  plan.blocks = divide_up(channels, std::clamp<size_t>(block_lines / lines, 1, channels));
  plan.channels = divide_up(channels, plan.blocks);
  plan.blocks = divide_up(channels, plan.channels);
  const size_t row_pitch = pitch_of(window_, maps_.out_w);
  plan.whole_rows = !in_place_ && plan.blocks == 1 && right > 1 && channels * plan.planes * plan.image_rows * row_pitch <= kStripLines;
  const double pixels = static_cast<double>(rows * across), tiles = static_cast<double>(down * right);
  const double nonzeros = weight_.density() * static_cast<double>(weight_.columns()), blocks = static_cast<double>(plan.blocks);
  const size_t near = plan.channels * lines;
  double load = kFar;
  for (size_t i = std::size(kLoads); i-- > 0;)
    if (near <= kLoads[i].lines) load = kLoads[i].cycles;
  double laid = in_place_ ? 0.0 : static_cast<double>(channels * lines) * (parted_ ? kParted : kLaid);
  if (plan.whole_rows) {
    laid = laid * static_cast<double>(row_pitch) / static_cast<double>(plan.pitch * right);
    plan.pitch = row_pitch;
  }
  const double groups = std::max(1.0, std::ceil(nonzeros * static_cast<double>(rows_) / static_cast<double>(kEntriesAtOnce)));
  const double of_row = nonzeros * std::max(pixels * load + kNonzero, kLatency) + (2 * blocks - 1) * pixels * kSum + blocks * kRow;
  plan.laid = tiles * groups * laid;
  plan.cycles = tiles * static_cast<double>(rows_) * of_row + plan.laid;
  return plan;
}

size_t TogetherProduct::channel_step() const {
  return (in_place_ ? maps_.height * maps_.width : plan_.planes * plan_.image_rows * plan_.pitch) * lanes_;
}

// Rows of the weight that are decoded at once, and how many entries they may have.
size_t TogetherProduct::rows_at_once() const {
  const size_t widest = std::max<size_t>(1, weight_.widest()), sums = plan_.blocks > 1 ? plan_.rows * plan_.across * lanes_ : 1;
  const size_t most = std::min({kMostPositions / weight_.columns(), kEntriesAtOnce / widest, kSumsAtOnce / sums});
  return std::clamp<size_t>(most, 1, rows_);
}
size_t TogetherProduct::entries_at_once() const {
  const size_t most = std::min(rows_at_once() * weight_.widest(), weight_.matrix().entries);
  return whole_lines(most + kBehindDecoded);
}

// For sums that wait; before there are any, for what is decoded, as rows have it.
size_t TogetherProduct::sums_room() const {
  const size_t sums = plan_.blocks > 1 ? rows_at_once() * plan_.rows * plan_.across * lanes_ : 0;
  const size_t arrays = values_lie_in_file(weight_) ? 1 : 2;
  return whole_lines(std::max(sums, whole_lines(rows_at_once() * (plan_.blocks + 1)) + arrays * entries_at_once()));
}

Needs TogetherProduct::needs() const {
  const size_t patch = in_place_ ? 0 : plan_.channels * channel_step();
  return {weight_.columns(), whole_lines(rows_at_once() * plan_.blocks + 1) + 2 * entries_at_once() + sums_room() + patch};
}

// The first block of the rows [begin, end); the others lie behind it.
Segments TogetherProduct::decode(size_t begin, size_t end, const int32_t* offsets, float* room, float* scratch,
                                 const NetKernels& kernels) const {
  const int area = window_.kernel_h * window_.kernel_w;
  const size_t step = channel_step(), rows = end - begin, blocks = plan_.blocks, block_floats = plan_.channels * step;
  const Places places{area > 1 ? offsets : nullptr, area, static_cast<int32_t>(step), weight_.columns()};
  auto* cuts = reinterpret_cast<uint32_t*>(scratch);
  auto* placed = reinterpret_cast<int32_t*>(scratch + whole_lines(rows_at_once() * (blocks + 1)));
  decode_rows(weight_, begin, end, places, blocks, block_floats, cuts, placed, kernels);
  const float* values = static_cast<const float*>(weight_.matrix().values) + weight_.row_start(begin);
  if (!values_lie_in_file(weight_)) {
    float* converted = reinterpret_cast<float*>(placed) + entries_at_once();
    weight_.read_values(begin, end, converted, kernels);
    values = converted;
  }
  auto* sorted_cuts = reinterpret_cast<uint32_t*>(room);
  auto* sorted = reinterpret_cast<int32_t*>(room + whole_lines(rows_at_once() * blocks + 1));
  float* sorted_values = reinterpret_cast<float*>(sorted) + entries_at_once();
  kernels.sort_blocks({placed, values, cuts, blocks + 1, rows}, blocks, static_cast<int32_t>(block_floats), sorted, sorted_values, sorted_cuts);
  return {sorted, sorted_values, sorted_cuts, 1, rows};
}

void TogetherProduct::run(const Beside& x, const Finish& finish, float* y, const Workplace& place) const {
  auto* offsets = reinterpret_cast<int32_t*>(place.shared);
  const size_t area = static_cast<size_t>(window_.kernel_h * window_.kernel_w);
  const size_t plane = plan_.image_rows * plan_.pitch * lanes_;
  place_window(window_, plane, plan_.pitch, lanes_, weight_.columns() / area, channel_step(), offsets);
  const double operations = weight_.density() * static_cast<double>(weight_.rows() * weight_.columns() * maps_.out_h * maps_.out_w * lanes_);
  const size_t right = plan_.whole_rows ? 1 : divide_up(maps_.out_w, plan_.across), units = divide_up(maps_.out_h, plan_.rows) * right;
  // Each task decodes its rows of the weight, and lays out its part of the image.
  const auto threads = static_cast<size_t>(place.worth(operations));
  const double decoded = kDecoded * static_cast<double>(weight_.matrix().entries / groups_);
  const bool by_rows = threads > 1 && (decoded > plan_.laid || units < threads);
  const size_t row_tasks = by_rows ? std::min(2 * threads, divide_up(rows_, 8)) : 1;
  const size_t image_tasks = threads == 1 || by_rows ? 1 : std::min(units, 2 * threads);
  const size_t of_group = maps_.channels * maps_.height * maps_.width * (x.together ? lanes_ : 1);
  place.each(groups_ * image_tasks * row_tasks, operations, [&](size_t task, int worker) {
    const size_t rows = task % row_tasks, image = task / row_tasks % image_tasks, group = task / row_tasks / image_tasks;
    const Part part{group * rows_ + rows_ * rows / row_tasks, group * rows_ + rows_ * (rows + 1) / row_tasks, units * image / image_tasks,
                    units * (image + 1) / image_tasks};
    multiply({x.data + group * of_group, x.together}, finish, y, part, offsets, place.room(worker), place.kernels);
  });
}

void TogetherProduct::multiply(const Beside& x, const Finish& finish, float* y, const Part& part, const int32_t* offsets, float* room,
                               const NetKernels& kernels) const {
  const size_t step = channel_step(), in = maps_.height * maps_.width, out = maps_.out_h * maps_.out_w * lanes_;
  const size_t tile_floats = plan_.rows * plan_.across * lanes_;
  float* waiting = room + whole_lines(rows_at_once() * plan_.blocks + 1) + 2 * entries_at_once();
  float* laid_out = waiting + sums_room();
  const size_t plane = plan_.image_rows * plan_.pitch * lanes_, pitch = plan_.pitch * lanes_;
  const size_t image_step = x.together ? 0 : groups_ * maps_.channels * in, pixel = x.together ? lanes_ : 1;
  Sums how = limits_of(finish.activation, finish.first, finish.second);
  const bool limited = how.limited, unfinished = !limited && finish.activation != Activation::none;
  const auto lay_out = [&](size_t first_channel, size_t last_channel, const Patch& patch) {
    float* to = laid_out;
    for (size_t channel = first_channel; channel < last_channel; ++channel, to += step)
      kernels.lay_patch(x.data + channel * in * pixel, image_step, patch, to);
  };
  const auto patch_of = [&](const Pixels& pixels) {
    return patch_for(window_, maps_, pixels.top, pixels.rows, pixels.left, pixels.across, pitch, plane);
  };
  for (size_t begin = part.first_row; begin < part.last_row; begin += rows_at_once()) {
    const size_t end = std::min(begin + rows_at_once(), part.last_row);
    const Segments first_block = decode(begin, end, offsets, room, waiting, kernels);
    for (size_t unit = part.first; unit < part.last; ++unit) {
      const Pixels here = pixels_of(unit), next = unit + 1 < part.last ? pixels_of(unit + 1) : here;
      const size_t tiles = divide_up(here.across, plan_.across);
      for (size_t number = 0; number < tiles; ++number) {
        Pixels pixels = here;
        pixels.left = here.left + here.across * number / tiles;
        pixels.across = here.left + here.across * (number + 1) / tiles - pixels.left;
        float* result = y + begin * out + (pixels.top * maps_.out_w + pixels.left) * lanes_;
        Tile tile{};
        tile.rows = static_cast<int>(pixels.rows);
        tile.across = static_cast<int>(pixels.across);
        tile.x_row = in_place_ ? 0 : static_cast<size_t>(window_.stride_h) * pitch;
        Segments segments = first_block;
        for (size_t block = 0; block < plan_.blocks; ++block) {
          const size_t channel = block * plan_.channels;
          if (!in_place_ && number == 0)
            lay_out(channel, std::min(channel + plan_.channels, maps_.channels), patch_of(here));
          const bool last = block + 1 == plan_.blocks;
          tile.x = in_place_ ? x.data + (channel * in + pixels.left) * lanes_ : laid_out + (pixels.left - here.left) * lanes_;
          tile.from = block == 0 ? nullptr : waiting;
          tile.to = last ? result : waiting;
          tile.from_step = tile_floats;
          tile.to_step = last ? out : tile_floats;
          tile.to_row = (last ? maps_.out_w : pixels.across) * lanes_;
          how.start = finish.bias + begin;
          how.limited = last && limited;
          const size_t then = last ? 0 : channel + plan_.channels;  // what is laid out, or read, behind this
          const bool near_end = plan_.blocks > 1 || number + 1 == tiles;  // a row of tiles is laid out once
          const size_t channels = x.together && near_end ? std::min(plan_.channels, maps_.channels - then) : 0;
          Ahead ahead(x.data + then * in * lanes_, channels, in * lanes_, patch_of(last ? next : here), lanes_);
          for (size_t row = begin; row < end; row += kRowsAtOnce) {
            segments.rows = std::min(kRowsAtOnce, end - row);
            ahead.fetch(row - begin + segments.rows, end - begin);
            kernels.accumulate_tiles(segments, tile, how);
            segments.cuts += segments.rows;
            if (tile.from) tile.from += segments.rows * tile.from_step;
            tile.to += segments.rows * tile.to_step;
            how.start += segments.rows;
          }
        }
        for (size_t row = begin; row < end && unfinished; ++row, result += out)
          for (size_t i = 0; i < pixels.rows; ++i)
            kernels.activate(finish.activation, finish.first, finish.second, result + i * maps_.out_w * lanes_, pixels.across * lanes_);
      }
    }
  }
}

// Of a unit of work: a tile, or a row of them.
TogetherProduct::Pixels TogetherProduct::pixels_of(size_t unit) const {
  const size_t down = divide_up(maps_.out_h, plan_.rows), right = plan_.whole_rows ? 1 : divide_up(maps_.out_w, plan_.across);
  const size_t i = unit / right, j = unit % right;
  const size_t top = maps_.out_h * i / down, left = maps_.out_w * j / right;
  return {top, maps_.out_h * (i + 1) / down - top, left, maps_.out_w * (j + 1) / right - left};
}

TogetherDepthwise::TogetherDepthwise(const Weight& weight, const Window& window, const Maps& maps, const Traits& traits)
    : weight_(weight), window_(window), maps_(maps), lanes_(static_cast<size_t>(traits.width)),
      across_(divide_up(maps.out_w, divide_up(maps.out_w, kMostOfTile))), planes_(planes_of(window)), pitch_(pitch_of(window, maps.out_w)) {
  rows_ = std::min(maps_.out_h, kMostOfTile / across_);
  strip_ = rows_;
  while (strip_ < maps_.out_h && planes_ * image_rows_of(window_, strip_ + rows_) * pitch_ * lanes_ <= kDepthwiseFloats) strip_ += rows_;
  strip_ = std::min(strip_, maps_.out_h);
}

size_t TogetherDepthwise::image_rows() const { return image_rows_of(window_, strip_); }

Needs TogetherDepthwise::needs() const {
  return {weight_.columns(), whole_lines(DenseRows::room(weight_)) + planes_ * image_rows() * pitch_ * lanes_};
}

void TogetherDepthwise::run(const Beside& x, const Finish& finish, float* y, const Workplace& place) const {
  const size_t in = maps_.height * maps_.width, out = maps_.out_h * maps_.out_w * lanes_, taps = weight_.columns();
  const size_t image_step = x.together ? 0 : maps_.channels * in, pixel = x.together ? lanes_ : 1;
  const size_t pitch = pitch_ * lanes_, plane = image_rows() * pitch;
  auto* offsets = reinterpret_cast<int32_t*>(place.shared);
  place_window(window_, plane, pitch_, lanes_, 1, 0, offsets);
  const Sums limits = limits_of(finish.activation, finish.first, finish.second);
  const bool unfinished = !limits.limited && finish.activation != Activation::none;
  const double operations = static_cast<double>(maps_.channels * (taps * out + in * lanes_));
  place.each_share(maps_.channels, 1, operations, [&](const Share& share, int worker) {
    DenseRows kernel(weight_, place.kernels, place.room(worker));
    float* laid_out = place.room(worker) + whole_lines(DenseRows::room(weight_));
    const uint32_t cuts[] = {0, static_cast<uint32_t>(taps)};
    for (size_t channel = share.first_map; channel < share.last_map; ++channel) {
      const Segments segments{offsets, kernel(channel), cuts, 2, 1};
      Sums how = limits;
      how.start = finish.bias + channel;
      for (size_t top = 0; top < maps_.out_h; top += strip_) {
        const size_t high = std::min(strip_, maps_.out_h - top);
        place.kernels.lay_patch(x.data + channel * in * pixel, image_step, patch_for(window_, maps_, top, high, 0, maps_.out_w, pitch, plane), laid_out);
        for (size_t row = 0; row < high; row += rows_)
          for (size_t left = 0; left < maps_.out_w; left += across_) {
            Tile tile{};
            tile.rows = static_cast<int>(std::min(rows_, high - row));
            tile.across = static_cast<int>(std::min(across_, maps_.out_w - left));
            tile.x_row = static_cast<size_t>(window_.stride_h) * pitch;
            tile.x = laid_out + row * tile.x_row + left * lanes_;
            tile.to = y + channel * out + ((top + row) * maps_.out_w + left) * lanes_;
            tile.to_row = maps_.out_w * lanes_;
            place.kernels.accumulate_tiles(segments, tile, how);
          }
      }
      if (unfinished) place.kernels.activate(finish.activation, finish.first, finish.second, y + channel * out, out);
    }
  });
}

}  // namespace membound
