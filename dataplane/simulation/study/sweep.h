// SPDX-License-Identifier: BSD-3-Clause
// A study of one's own: which cells the options of `hostnic simulate` ask for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/simulation/study/cell.h"
#include "dataplane/simulation/study/quantity.h"
#include "protocol/expected.h"

namespace hostnic::study {

inline constexpr size_t kMostCells = 10'000;

// As written. All but the last ones may be lists, and those with a unit ranges, too.
struct SweepOptions {
  std::string policies = "selective";
  std::string op = "write";
  std::string losses = "0", reorders = "0", distances = "16";
  std::string messages_bytes = "64K", mtu_bytes = "4096";
  std::string rates = "100Gbit", delays = "5us";
  std::string windows = "1024", qps = "1";
  std::string depths;                    // empty: enough to keep the link busy
  std::vector<std::string> impairments;  // [rx|tx] SPEC
  std::string messages;                  // per QP; empty: some hundred, more of short ones
  uint32_t points = 11;
  uint64_t seed = 7;
  bool incast = false;
};

// Makes the cells, in the order in which they are shown; an error is one line that says which
// option is wrong, and what would be right.
Expected<std::vector<Cell>, std::string> cells_of(const SweepOptions& options);

// What cells can differ in, besides their policy.
struct Dimension {
  const char* title;  // "loss"
  Unit unit;
  uint64_t (*value)(const Cell& cell);
};
// The dimensions in which these cells do differ.
std::vector<const Dimension*> dimensions_of(const std::vector<Cell>& cells);

}  // namespace hostnic::study
