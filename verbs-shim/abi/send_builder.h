// SPDX-License-Identifier: BSD-3-Clause
// The work request builder behind ibv_wr_start() .. ibv_wr_complete(): collects requests, then
// posts all of them or, after any error, none.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "verbs-shim/base/biased_mutex.h"
#include "verbs-shim/driver/types.h"

namespace hostnic::driver {
class Qp;
}
namespace hostnic::runtime {
class Context;
}

namespace hostnic::abi {

// Builds a batch of requests. Between start() and complete() or abort() one thread owns the
// builder; others wait in start(), as with a hardware provider. Buffers keep their capacity: after
// the first rounds nothing is allocated.
class SendBuilder {
 public:
  void set_limits(const driver::QpCaps& caps, QpType type) {
    caps_ = caps;
    type_ = type;
  }

  void start();
  // Begins a request; `flags` are ibv_send_flags. The returned request is valid until the next
  // begin().
  driver::SendRequest& begin(SendOp op, uint64_t wr_id, unsigned int flags);
  void add_sges(const ibv_sge* list, size_t count);
  void add_inline(const ibv_data_buf* buffers, size_t count);
  void set_destination(const driver::UdAddress& destination);
  // Has the last request bind this window, which has the request's key once it is posted.
  void set_window(ibv_mw* window);
  // Notes an error of the batch, the first of which complete() returns.
  void refuse(int error);
  // Posts the batch: returns 0, or an errno value and nothing is posted: EINVAL for a bad request
  // or state, ENOMEM when the send queue has not enough room for all.
  int complete(runtime::Context& context, driver::Qp& qp);
  void abort();

 private:
  struct Pending {
    driver::SendRequest request;
    size_t first_sge = 0;  // in sges_
    size_t sge_count = 0;
    size_t first_inline_byte = 0;  // in inline_bytes_
    size_t inline_bytes = 0;
  };

  void clear();
  int post_all(runtime::Context& context, driver::Qp& qp);

  BiasedMutex mutex_;
  driver::QpCaps caps_;
  QpType type_ = QpType::kRc;
  std::vector<Pending> pending_;
  std::vector<Sge> sges_;
  std::vector<std::byte> inline_bytes_;
  struct Bind {
    size_t index;  // in pending_
    ibv_mw* window;
  };
  std::vector<Bind> binds_;
  driver::SendRequest scratch_;  // what begin() hands out after an error
  int error_ = 0;
};

// The operations of ibv_qp_create_send_ops_flags that a queue pair of this type has.
uint64_t send_ops_of(QpType type);

// Fills the function pointers of a QP that was created with send_ops_flags.
void install_send_builder(ibv_qp_ex& qp);

}  // namespace hostnic::abi
