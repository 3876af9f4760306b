// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/qp/read_order.h"

#include <algorithm>

#include "protocol/faults.h"

namespace hostnic {

DigestTables::DigestTables(uint32_t window, uint64_t seed)
    : window_(window), secret_(seed), entries_(size_t{kTables} * window), owners_(kTables) {}

void DigestTables::give(ReadOrder& order) {
  if (order.has_digests()) return;
  ReadOrder*& owner = owners_[next_];
  if (owner != nullptr) take(*owner);
  owner = &order;
  order.table_ = entries_.data() + size_t{next_} * window_;
  order.mask_ = window_ - 1;
  order.unrepeated_ = 0;
  std::fill_n(order.table_, window_, 0);
  next_ = (next_ + 1) % kTables;
  ++used_;
}

void DigestTables::take(ReadOrder& order) {
  if (!order.has_digests()) return;
  owners_[static_cast<size_t>(order.table_ - entries_.data()) / window_] = nullptr;
  order.table_ = nullptr;
  --used_;
}

void DigestTables::begin_epoch(ReadOrder& order) {
  order.any_ = false;
  if (order.has_digests() && !broken(Fault::digests_outlive_epoch))
    std::fill_n(order.table_, window_, 0);
}

}  // namespace hostnic
