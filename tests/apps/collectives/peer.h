// SPDX-License-Identifier: BSD-3-Clause
// A connection to one peer, in the way of gloo's ibverbs transport: buffers are announced by SEND,
// data comes by RDMA WRITE WITH IMMEDIATE into announced buffers, and one thread takes all
// completions.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

#include "tests/apps/collectives/ranks.h"

namespace hostnic::collectives {

// A verb that must succeed: dies with its name and errno's text otherwise.
void must(int error, const char* what);
[[noreturn]] void die_of_errno(const char* what);
template <typename T>
T* must(T* made, const char* what) {
  if (made == nullptr) die_of_errno(what);
  return made;
}

// What is sent to the peer: it may write so many bytes there, once.
struct Announcement {
  uint64_t address;
  uint32_t rkey;
  uint32_t bytes;
};

struct Device {
  ibv_context* context;
  ibv_pd* pd;
  ibv_comp_channel* channel;
  ibv_gid gid;
  ibv_mtu mtu;
};

class Peer {
 public:
  // As many as gloo: so few that queues fill and receivers are not ready, which both ends must
  // bear.
  static constexpr unsigned kSends = 8, kReceives = 8;

  Peer(Place& place, const Device& device, unsigned rank);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  Address address() const;
  void connect(const Address& remote);

  // Lets the peer write into [data, data + bytes) of a region. The number of its write is returned.
  uint64_t announce(const ibv_mr* region, const void* data, uint64_t bytes);
  // Waits for the peer's next announcement, which must be of as many bytes, and writes into it.
  void write(const ibv_mr* region, const void* data, uint64_t bytes);
  void wait_data(uint64_t number);
  // Of no bytes and into no buffer. Returned and waited for is a number, counted from 1.
  void notify();
  void wait_notice(uint64_t number);
  // Until all that was sent has completed.
  void wait_sent();

  // By the thread that takes completions.
  void on_event();

 private:
  // Immediate data: whether it is a notice, and the number of the write, announcement, or notice.
  static constexpr uint32_t kNotice = 1U << 31, kNumbers = kNotice - 1;

  void post_receive(uint64_t number);
  void post_send(std::unique_lock<std::mutex>& lock, ibv_send_wr& request);
  void complete(const ibv_wc& completion);
  void received(const ibv_wc& completion);
  template <typename Done>
  void wait(std::unique_lock<std::mutex>& lock, Doing why, uint64_t number, Done done);
  [[noreturn]] void wrong(const std::string& what) const;

  Place& place_;
  const Device& device_;
  const unsigned rank_;  // the peer's
  const uint32_t psn_;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mr* inbox_region_ = nullptr;
  ibv_mr* outbox_region_ = nullptr;
  unsigned events_to_acknowledge_ = 0;  // the event thread's, and after it the destructor's

  std::mutex mutex_;  // of all that follows
  std::condition_variable moved_;
  std::array<Announcement, kReceives> inbox_{};
  std::array<Announcement, kSends> outbox_{};
  std::deque<Announcement> announced_;  // by the peer, and not written yet
  uint64_t receives_posted_ = 0, receives_completed_ = 0;
  uint64_t sends_posted_ = 0, sends_completed_ = 0;
  uint64_t announcements_sent_ = 0, announcements_received_ = 0;
  uint64_t writes_sent_ = 0, writes_received_ = 0;
  uint64_t notices_sent_ = 0, notices_received_ = 0;
  std::deque<uint64_t> bytes_expected_;  // of the buffers that this side has announced
};

}  // namespace hostnic::collectives
