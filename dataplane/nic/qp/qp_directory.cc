// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/qp/qp_directory.h"

#include <cassert>
#include <utility>

namespace hostnic {

QpDirectory::QpDirectory(uint32_t max_qps) : max_qps_(max_qps) {
  qps_.reserve(kFirstIndex + max_qps);
  generations_.reserve(kFirstIndex + max_qps);
  qps_.resize(kFirstIndex);
  generations_.resize(kFirstIndex, 1);
}

QpContext* QpDirectory::add(std::unique_ptr<QpContext> qp) {
  uint32_t index = 0;
  if (qps_.size() < kFirstIndex + max_qps_) {
    index = static_cast<uint32_t>(qps_.size());
    qps_.emplace_back();
    generations_.push_back(1);
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
