// SPDX-License-Identifier: BSD-3-Clause
// Connected queue pairs between the first two RDMA devices, both ends in this process, as an
// ordinary verbs program makes them. What fails ends the program with one line.
#pragma once
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace hostnic::bench {

[[noreturn]] void die(std::string_view what);

enum class Sharing { kPrivate, kShared };

// Page-aligned memory, touched: private, or of a memfd that stays open.
class Pages {
 public:
  explicit Pages(size_t bytes, Sharing sharing = Sharing::kPrivate);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* at(size_t offset) const { return start_ + offset; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* start_;
  size_t bytes_;
  int fd_ = -1;
};

struct Destroy {
  void operator()(ibv_context* it) const { ibv_close_device(it); }
  void operator()(ibv_pd* it) const { ibv_dealloc_pd(it); }
  void operator()(ibv_cq* it) const { ibv_destroy_cq(it); }
  void operator()(ibv_mr* it) const { ibv_dereg_mr(it); }
  void operator()(ibv_qp* it) const { ibv_destroy_qp(it); }
};
template <class T>
using Owned = std::unique_ptr<T, Destroy>;

struct Depths {
  uint32_t send = 16;
  uint32_t receive = 16;
  uint32_t completions = 1024;
};

// One device, with a completion queue for sends and one for receives.
class End {
 public:
  End(size_t device_number, const Depths& depths);

  Owned<ibv_mr> try_register(void* start, size_t bytes) const;
  Owned<ibv_mr> register_memory(const Pages& pages) const;
  void add_queue_pair();
  void connect(size_t number, const End& peer);

  ibv_qp* qp(size_t number) const { return qps_[number].get(); }
  ibv_cq* send_cq() const { return send_cq_.get(); }
  ibv_cq* receive_cq() const { return receive_cq_.get(); }

 private:
  Depths depths_;
  Owned<ibv_context> context_;
  Owned<ibv_pd> pd_;
  Owned<ibv_cq> send_cq_, receive_cq_;
  std::vector<Owned<ibv_qp>> qps_;
  ibv_gid gid_{};
};

// `count` queue pairs of each, connected in pairs of the same number.
void connect_queue_pairs(End& first, End& second, size_t count);

// Takes up to `wanted` completions; those taken were successful.
size_t poll(ibv_cq* cq, size_t wanted);

}  // namespace hostnic::bench
