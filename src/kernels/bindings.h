// What the files that know Python share.
#pragma once

#include <nanobind/nanobind.h>

namespace membound {

void bind_micro(nanobind::module_& m);
void bind_network(nanobind::module_& m);

}  // namespace membound
