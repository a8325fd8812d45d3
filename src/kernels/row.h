// A row of a weight as it lies in the file: where its nonzeros are (the format) and what they are (the type of values).
#pragma once

#include <cstddef>
#include <cstdint>

namespace membound {

enum class Format : int { dense, bitmask, indexed, csr, delta };
inline constexpr const char* kFormatNames[] = {"dense", "bitmask", "indexed", "csr", "delta"};

enum class ValueType : int { f32, f16 };
inline constexpr const char* kValueTypeNames[] = {"f32", "f16"};

struct Half {
  uint16_t bits;
};

constexpr size_t value_bytes(ValueType type) { return type == ValueType::f16 ? 2 : 4; }

struct Row {
  Format format;
  ValueType type;
  size_t count;        // entries
  const void* values;  // of these, the first
  const void* index;   // the first entry's position, column or gap; of a bitmask the whole array of bits,
  size_t index_end;    // which ends after so many bytes
  int index_bytes;     // csr: of a column
  // Bitmask: the row's first bit. Indexed: the position at which the row begins. Delta: the column of the first entry.
  size_t first;
  size_t columns;      // of the weight
};

}  // namespace membound
