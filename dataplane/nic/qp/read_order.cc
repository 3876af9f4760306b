// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/qp/read_order.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace hostnic {

DigestTables::Set::Set(uint32_t window, uint64_t seed) : secret(seed) {
  tables.reserve(kTables);
  for (uint32_t i = 0; i < kTables; ++i) tables.emplace_back(window, secret);
}

bool DigestTables::Set::any_referred_to() const {
  return std::ranges::any_of(tables, [](const DigestTable& t) { return t.is_referred_to(); });
}

struct DigestTables::Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Set>> released;
};

DigestTables::Pool& DigestTables::pool() {
  static Pool* const pool = new Pool;  // never deleted, for answers that are read while the process
                                       // ends
  return *pool;
}

DigestTables::DigestTables(uint32_t window, uint64_t seed) : window_(window), owners_(kTables) {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  const auto at = std::ranges::find_if(p.released, [&](const auto& set) {
    return set->tables.front().window() == window && !set->any_referred_to();
  });
  if (at == p.released.end()) {
    set_ = std::make_unique<Set>(window, seed);
  } else {
    set_ = std::move(*at);
    p.released.erase(at);
    set_->secret = DigestSecret(seed);
  }
}

DigestTables::~DigestTables() {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  p.released.push_back(std::move(set_));
}

void DigestTables::give(ReadOrder& order, const PacketCount* answers) {
  if (order.has_digests()) return;
  for (uint32_t tried = 0; tried < kTables; ++tried) {
    DigestTable& table = set_->tables[next_];
    ReadOrder*& owner = owners_[next_];
    next_ = (next_ + 1) % kTables;
    if (table.is_referred_to()) continue;
    if (owner != nullptr) take(*owner);
    owner = &order;
    table.begin(answers);
    order.table_ = &table;
    order.unrepeated_ = 0;
    ++used_;
    return;
  }
}

void DigestTables::take(ReadOrder& order) {
  if (!order.has_digests()) return;
  owners_[static_cast<size_t>(order.table_ - set_->tables.data())] = nullptr;
  order.table_ = nullptr;
  --used_;
}

void DigestTables::begin_epoch(ReadOrder& order) {
  order.any_ = false;
  if (order.has_digests()) order.table_->forget_all();
}

}  // namespace hostnic
