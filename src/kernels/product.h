// A weight times an image: convolution and, with the batch as the image, linear layers.
#pragma once

#include <functional>

#include "reader.h"

namespace membound {

constexpr size_t kMostOffset = 0x7fffffff;  // offsets into an image are 32-bit

inline size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }

// What is read behind an image is never used, but it takes part: whole numbers that were left there are, as floats, so
// small that each product with one takes a hundred times as long.
inline void clear_slack(float* behind) { std::fill_n(behind, kSlack, 0.0f); }

// Where the product reads and writes. The image is laid out so that the pixel p of row i that the weight's column k
// meets is x[offset(k) + i * row_step + p]: padded, and split by stride, beforehand.
struct Image {
  const int32_t* offsets = nullptr;  // of each column; null: column * column_step
  size_t column_step = 0;
  size_t channel_columns = 1;        // columns that read one channel: the kernel's area
  size_t channel_floats = 0;         // floats of a channel that a row of output may touch, for blocking
  size_t row_step = 0;
  size_t rows = 1, pixels = 0;       // the output: rows of pixels
  bool by_lines = false;             // every row that is read begins where a line of the cache does (Bands)
  bool decoded = false;              // there is room for decoded rows of the weight
  bool banded = false;               // nothing is laid out before: what a tile reads is, when its turn comes
};

// Lays out what `rows` rows of outputs from `first` on read, and says where.
using LayOut = std::function<const float*(size_t first, size_t rows)>;

struct Finish {
  const float* bias;  // one a row of the weight
  Activation activation;
  float first, second;
};

// Floats that one worker needs as room for a product of groups of `rows` rows of this weight with this image, or, where it
// is one row, with one of fewer pixels.
size_t product_room(const Weight& weight, const Image& image, size_t rows, const Traits& traits);

// Whether a product meets the nonzeros of a weight one by one.
bool is_direct(const Weight& weight, const Image& image, size_t rows, const Traits& traits);

// Whether between the rows of an image lies so much that each is better summed for itself: of short vectors.
bool has_wide_gaps(const Image& image, const Traits& traits);

// Whether a product gains by rows that are decoded before, if there is room.
bool may_be_decoded(const Weight& weight, const Image& image, size_t rows, const Traits& traits);

// Rows of outputs that are summed at once, where the image may be laid out for so many at a time; else 0. The weight is decoded
// as a whole, so that nothing is laid out twice.
size_t banded_rows(const Weight& weight, const Image& image, size_t rows, const Traits& traits);

// Entries that may be written behind those that are decoded.
constexpr size_t kBehindDecoded = Weight::kLeastRead + kReadSlack;

bool values_lie_in_file(const Weight& weight);

// Where the entries of the rows [begin, end) meet an image, in `offsets`, and where the blocks of each row begin and end, in `cuts`:
// so many of so many floats of the image each.
void decode_rows(const Weight& weight, size_t begin, size_t end, const Places& places, size_t blocks, size_t block_floats,
                 uint32_t* cuts, int32_t* offsets, const NetKernels& kernels);

// How a product is cut into tasks.
struct Tasks {
  size_t row_tasks, image_tasks;
  bool by_rows = false;  // tasks of the image are rows of it, as many each
  size_t count() const { return row_tasks * image_tasks; }
};

// Products of groups of `rows` rows of a weight with images of one layout: planned once, multiplied many times. The
// nonzeros are met one by one, or, where that is better, as dense blocks that are unpacked as they are used.
class Product {
 public:
  // What an instruction set makes of it: for those who multiply again and again.
  struct Plans;
  Product(const Weight& weight, const Image& image, size_t rows, const Finish& finish, const NetKernels& kernels);
  Product(const Weight& weight, const Image& image, size_t rows, const Finish& finish, const NetKernels& kernels, const Plans& plans);

  // For `threads`, when `products` of them run side by side.
  Tasks cut(size_t products, int threads) const;
  // For `threads`, each of which takes whole tiles of the image.
  Tasks cut_into_tiles(size_t products, int threads) const;
  // For `threads`, each of which takes its rows of the image, in a few tasks, and reads the whole weight.
  Tasks cut_by_rows(int threads) const;

  // One task: rows of the weight from `first_row` on, times x, into y, whose row r is y + r * y_step.
  void multiply(const float* x, size_t first_row, float* y, size_t y_step, const Tasks& tasks, size_t task,
                float* room) const {
    multiply({x, nullptr}, first_row, y, y_step, tasks, task, room);
  }
  // The same of an image that is banded.
  void multiply(const LayOut& lay_out, size_t first_row, float* y, size_t y_step, const Tasks& tasks, size_t task,
                float* room) const {
    multiply({nullptr, &lay_out}, first_row, y, y_step, tasks, task, room);
  }

 private:
  // The image, or what lays it out.
  struct Source {
    const float* x;
    const LayOut* lay_out;
  };
  // Rows of the weight [first_row, last_row), and of the plan's extent of the image [first, last).
  struct Part {
    size_t first_row, last_row, first, last;
  };
  // Sums of a `whole` image, whose rows follow one another in the output as here, go straight there, and so do those of
  // rows that are summed each for itself. Others are summed with what lies between their rows, and copied.
  struct DirectPlan {
    bool whole, by_rows;
    size_t extent;         // of the image: pixels if it is whole, else rows
    size_t tile;           // how many of these are summed at once
    size_t block_columns;  // columns of the weight at once
    size_t group;          // rows of the weight whose sums wait for the next block
    bool whole_rows;       // of which many are read at once (RowReader); else
    size_t ahead;          // entries that are decoded at once (Reader)
    size_t step;           // floats between their sums, where these are copied
    bool straight() const { return whole || by_rows; }
  };
  // Of decoded rows. Without a tile, there is no such plan.
  struct BlockedPlan {
    bool whole;      // rows of the image follow one another as their outputs do; else sums wait, and are copied
    size_t extent;   // of the image: pixels if it is whole, else rows
    size_t tile;     // how many of these are summed at once
    size_t columns;  // of the weight at once
    size_t blocks;   // of so many columns
    size_t group;    // rows of the weight that are decoded at once,
    size_t entries;  // and how many entries these have
    size_t step;     // floats between their sums, where these wait
  };
  // The weight is packed as it is used, block of columns by block, anew for each block of pixels; or all of it at once,
  // where it is small, for many smaller blocks of pixels.
  struct DensePlan {
    bool in_place;  // pixels are read where they lie; else they are gathered
    size_t depth;   // columns at once
    size_t pixels;  // of a block
    size_t step;    // floats between their rows
    bool pack_once;
  };
  friend bool may_be_decoded(const Weight& weight, const Image& image, size_t rows, const Traits& traits);
  friend size_t banded_rows(const Weight& weight, const Image& image, size_t rows, const Traits& traits);
  friend size_t product_room(const Weight& weight, const Image& image, size_t rows, const Traits& traits);
  static DirectPlan plan_direct(const Weight& weight, const Image& image, const Traits& traits);
  static BlockedPlan plan_blocked(const Weight& weight, const Image& image, const Traits& traits);
  static BlockedPlan with_groups(BlockedPlan plan, const Weight& weight, size_t most);
  static size_t blocked_room(const Weight& weight, const BlockedPlan& plan);
  static DensePlan plan_dense(const Weight& weight, const Image& image, size_t rows, const Traits& traits);
  static size_t dense_room(const Weight& weight, const Image& image, size_t rows, const Traits& traits);

  void multiply_direct(const float* x, const Part& part, float* y, size_t y_step, float* room) const;
  void multiply(const Source& source, size_t first_row, float* y, size_t y_step, const Tasks& tasks, size_t task,
                float* room) const;
  void multiply_blocked(const Source& source, const Part& part, float* y, size_t y_step, float* room) const;
  void multiply_dense(const float* x, const Part& part, float* y, size_t y_step, float* room) const;
  size_t find_chunks(size_t& first, size_t last, Chunk* chunks) const;
  void gather_pixels(const float* x, size_t begin, size_t end, size_t first, size_t last, float* out) const;
  void pack_rows(size_t row, size_t rows, size_t begin, size_t end, const Cursors& cursors, float* packed,
                 int32_t* columns, float* converted, size_t most) const;
  void finish_row(float* y, size_t n) const;
  bool reads_lines(const float* x) const;

  const Weight& weight_;
  const Image image_;
  const size_t rows_;
  const Finish finish_;
  const Sums limits_;            // what the activation does to sums,
  const bool limits_suffice_;    // if limits say it all: their kernel brings them within
  const NetKernels& kernels_;
  const DirectPlan direct_plan_;
  const BlockedPlan blocked_plan_;
  const DensePlan dense_plan_;
  const bool direct_;
};

struct Product::Plans {
  Plans(const Weight& weight, const Image& image, size_t rows, const Traits& traits);
  DirectPlan direct;
  BlockedPlan blocked;
  DensePlan dense;
  bool is_direct;
};

}  // namespace membound
