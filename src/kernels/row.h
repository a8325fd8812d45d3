// A row of a weight as it lies in the file: where its nonzeros are (the format) and what they are (the type of values).
#pragma once

#include <cstddef>
#include <cstdint>

namespace membound {

enum class Format : int { dense, bitmask, indexed, csr, delta, rice };
inline constexpr const char* kFormatNames[] = {"dense", "bitmask", "indexed", "csr", "delta", "rice"};

enum class ValueType : int { f32, f16, p1, p2, p3, p4, p5, p6, p7, p8 };
inline constexpr const char* kValueTypeNames[] = {"f32", "f16", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"};

struct Half {
  uint16_t bits;
};

// Bits of a code into a palette; 0 where values are numbers themselves.
constexpr unsigned code_bits(ValueType type) {
  return type < ValueType::p1 ? 0 : static_cast<unsigned>(type) - static_cast<unsigned>(ValueType::p1) + 1;
}
constexpr size_t value_bits(ValueType type) {
  return type == ValueType::f32 ? 32 : type == ValueType::f16 ? 16 : code_bits(type);
}

// All the values of a weight. Codes are packed without gaps, lowest bits first; the palette has an entry for every code
// that there can be.
struct Values {
  ValueType type;
  const void* data;
  size_t bytes;
  const float* palette;
  float step;  // if it is not 0: the palette is its multiples, 0 in the middle
};

// Codes from entry `first` on.
struct Codes {
  const uint8_t* bytes;
  const uint8_t* end;  // of the array: nothing is read behind it
  const float* palette;
  float step;
  unsigned bits;
  size_t first;
  Codes operator+(size_t n) const { return {bytes, end, palette, step, bits, first + n}; }
};

// Positions in about their entropy. The gap before entry i (elements between it and the one before) is cut: its k lowest
// bits are number i of `low`; the rest, as so many zeros and a one, is what the bits of `high` say next.
struct Rice {
  const uint8_t* high;
  const uint8_t* low;
  size_t high_bytes, low_bytes;
  unsigned k;
  bool near;  // each entry is less than 2^14 behind the one before it, and k is 9 or less
};

struct Row {
  Format format;
  const Values* values;
  size_t entry;        // the row's first,
  size_t count;        // and how many it has
  const void* index;   // the first entry's position, column or gap; of a bitmask the whole array of bits,
  size_t index_end;    // which ends after so many bytes
  int index_bytes;     // csr: of a column
  // Bitmask: the row's first bit. Indexed: the position at which the row begins. Delta: the column of the first entry.
  // Rice: the column of the entry before the row, seen from here, so that it may be negative, modulo 2^32.
  size_t first;
  size_t columns;      // of the weight
  const Rice* rice;
  uint32_t bit;        // rice: of `high`, the first behind the entry before the row
};

}  // namespace membound
