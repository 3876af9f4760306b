// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/start/huge_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace hostnic {
namespace {

uint64_t read_number(const std::string& path) {
  uint64_t number = 0;
  std::ifstream(path) >> number;
  return number;
}

}  // namespace

HugePageCounts count_huge_pages(const std::string& directory) {
  const uint64_t total = read_number(directory + "/nr_hugepages");
  const uint64_t free = read_number(directory + "/free_hugepages");
  return {total, free - std::min(free, read_number(directory + "/resv_hugepages"))};
}

std::string too_few_huge_pages(uint64_t needed, const HugePageCounts& counts) {
  const uint64_t missing = needed - std::min(needed, counts.available);
  return fmt::format(
      "huge pages are required: a device's rings and QP statuses take {} of 2 MB, {} are free "
      "(`sudo "
      "sysctl vm.nr_hugepages={}` grants them; huge = \"auto\" does without)",
      needed, counts.available, counts.total + missing);
}

}  // namespace hostnic
