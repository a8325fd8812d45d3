// Enumerations by name: what crosses over from Python, and from files of test drivers, is names, never numbers.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace membound {

// The one of an enumeration whose names are listed in its order.
template <class Enum, size_t count>
Enum named(const char* const (&names)[count], const std::string& name) {
  for (size_t i = 0; i < count; ++i)
    if (name == names[i]) return static_cast<Enum>(i);
  throw std::invalid_argument("a plan that cannot be: there is no " + name);
}

}  // namespace membound
