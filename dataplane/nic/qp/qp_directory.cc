// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/qp/qp_directory.h"

#include <cassert>
#include <utility>

#include "dataplane/nic/memory/random_source.h"

namespace hostnic {

QpDirectory::QpDirectory(uint32_t max_qps, uint64_t seed) : max_qps_(max_qps) {
  qps_.resize(kFirstIndex + max_qps);
  generations_.resize(kFirstIndex + max_qps);
  RandomSource random(seed);
  first_ = random.next() % max_qps;
  for (uint8_t& generation : generations_) generation = 1 + random.next() % 254;
}

QpContext* QpDirectory::add(std::unique_ptr<QpContext> qp) {
  uint32_t index = 0;
  if (given_ < max_qps_) {
    index = index_of(given_++);
  } else if (!free_indices_.empty()) {
    index = free_indices_.front();
    free_indices_.pop_front();
  } else {
    return nullptr;
  }
  qp->qpn = uint32_t{generations_[index]} << 16 | index;
  qps_[index] = std::move(qp);
  return qps_[index].get();
}

void QpDirectory::remove(const QpContext& qp) {
  assert(find(qp.qpn) == &qp);
  const uint32_t index = qp.qpn & 0xffff;
  qps_[index].reset();
  // The generation is never 255: the last index would get wire::kMulticastQpn.
  generations_[index] = generations_[index] == 254 ? 1 : generations_[index] + 1;
  free_indices_.push_back(index);
}

}  // namespace hostnic
