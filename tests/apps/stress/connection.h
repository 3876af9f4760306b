// SPDX-License-Identifier: BSD-3-Clause
// A connection: two RC queue pairs of this process, and a record of everything that is outstanding
// between them. One worker owns it, posts, and makes and unmakes it; any thread that polls one of
// its completion queues hands completions to it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/apps/stress/objects.h"
#include "tests/support/verbs_pair.h"

namespace hostnic::stress {

constexpr unsigned kMaxPieces = 3;

// A gather or scatter list: pieces of one slot.
struct Pieces {
  std::array<std::span<std::byte>, kMaxPieces> list;
  unsigned count = 0;
};

struct Request {
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  bool signalled = true, done = false, marker = false;
  ibv_wc_status expected = IBV_WC_SUCCESS;
  uint32_t length = 0;
  uint64_t stream = 0;  // of the bytes that it moves
  Pieces local;
  std::byte* remote = nullptr;
  uint64_t before = 0, after = 0;   // the word that an atomic changes
  std::optional<uint32_t> message;  // which of the peer's it is
  std::shared_ptr<Mr> local_mr, remote_mr;
  std::shared_ptr<Window> window;
};

struct Receive {
  Pieces pieces;
  std::shared_ptr<Mr> mr;
  bool done = false, marker = false;
};

// What the peer has posted that will use up a receive, in order.
struct Message {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint32_t length = 0, imm = 0;
  uint64_t stream = 0;
  uint32_t request = 0;  // its number at the sender
  ibv_wc_status expected = IBV_WC_SUCCESS;
  bool sent = false, received = false;  // completed there and here
};

// How a connection is broken on purpose.
enum class Break : uint8_t {
  kBadRkey,
  kOutOfBounds,
  kMisaligned,
  kBadLkey,
  kTooLong,
  kBadRkeyWithImm,
  kModified,
  kCount
};

class Connection;

// One end. All but what says otherwise is covered by the connection's mutex.
class End {
 public:
  End(Connection& of, uint16_t number, End& other) : connection(of), index(number), peer(other) {}

  // Makes everything that the end consists of, the queue pair in RESET. [owner, no mutex]
  void make(Shared& with, unsigned slot_count, uint32_t bytes_per_slot, Rng& rng);
  verbs::ConnectOptions connect_options() const;
  uint32_t first_psn() const;
  void to_init();
  void to_rtr(ibv_mtu mtu, Rng& rng);
  void to_rts(Rng& rng);
  int modify_to(ibv_qp_state state) const;
  void destroy_qp();
  // Lets go of everything else.
  void unmake();
  // Forgets what was outstanding. `all_told`: both ends have had all completions there can be.
  void forget(bool all_told);

  // [owner, mutex held]
  bool post_some(Rng& rng);
  void post_last();
  void post_break(Break how, Rng& rng);
  void post_markers();
  void refill(Rng& rng);
  void window_step(Rng& rng);
  void region_step();
  // The connection's other end's queue pairs and this one are in ERR, and nothing more will come.
  void check_drained();
  // What is no longer used; to be destroyed without the mutex.
  std::vector<std::shared_ptr<void>> take_retired();

  // [Cq::poll, mutex held]
  void on_send(uint32_t number, const ibv_wc& wc, bool ordered);
  void on_receive(uint32_t number, const ibv_wc& wc, bool ordered);
  void on_shared_receive(uint32_t slot, const ibv_wc& wc);

  uint32_t outstanding() const { return tail_ - head_; }
  bool has_room() const { return outstanding() < slots_; }
  bool idle() const { return head_ == tail_ && incoming_.empty(); }
  bool markers_done() const {
    return marker_sent_done_ && marker_received_done_ && (!srq_ || last_wqe_.load());
  }
  void expect_errors() { error_expected_ = true; }
  // No more receives from here on.
  void stop_receives() { stopped_ = true; }
  bool failed() const { return failed_; }
  bool has_srq() const { return srq_ != nullptr; }
  std::string describe() const;

  // Any thread.
  void last_wqe_reached() { last_wqe_ = true; }
  void refused_a_request(ibv_event_type event);

  Connection& connection;
  const uint16_t index;
  End& peer;
  uint16_t life = 0;
  uint32_t qpn = 0;
  ibv_qp* qp = nullptr;
  Shared* shared = nullptr;
  std::shared_ptr<Cq> send_cq, receive_cq;

 private:
  // requests.cc
  Request& next_request();
  void choose_operation(Request& request, ibv_send_wr& wr, Rng& rng);
  void choose_memory(Request& request, Rng& rng);
  void fill_in(Request& request, ibv_send_wr& wr, ibv_sge* sges, Rng& rng);
  void name_remote(Request& request, ibv_send_wr& wr);
  uint32_t expect_message(const Request& request, uint32_t imm, ibv_wc_status status);
  void post(ibv_send_wr* first);
  void post_bind();
  void post_invalidate();
  std::byte* local_slot(uint32_t number) const;
  std::byte* target_slot(uint32_t number) const;
  std::byte* receive_slot(uint32_t number) const;
  // completions.cc
  [[noreturn]] void wrong(const std::string& what) const;
  void succeeded(uint32_t number);
  void verify(uint32_t number, Request& request);
  void flushed(uint32_t number, Request& request, bool ordered);
  void finish_before(uint32_t number, bool ordered);
  void retire_requests();
  Message* message_at(uint32_t number);
  void check_message(Message& message, const ibv_wc& wc, const Pieces& at);
  void retire_messages();

  unsigned slots_ = 0;
  uint32_t slot_bytes_ = 0, max_inline_ = 0;
  std::shared_ptr<Pd> pd_;
  std::unique_ptr<Memory> memory_;
  std::shared_ptr<Mr> mr_;
  std::shared_ptr<Srq> srq_;
  std::shared_ptr<Window> window_;
  std::vector<std::shared_ptr<void>> retired_;

  std::vector<Request> requests_;  // number % size
  uint32_t head_ = 0, tail_ = 0, since_signalled_ = 0;
  std::vector<Receive> receives_;
  uint32_t receive_head_ = 0, receive_tail_ = 0;
  std::deque<Message> incoming_;
  uint32_t first_message_ = 0;  // number of incoming_.front()
  uint64_t next_stream_ = 0;

  bool error_expected_ = false, failed_ = false, stopped_ = false;
  std::optional<uint32_t> first_flushed_, last_flushed_;
  bool receives_flushed_ = false;
  bool marker_sent_done_ = false, marker_received_done_ = false;
  std::atomic<bool> last_wqe_{false}, may_refuse_{false};
};

class Connection {
 public:
  explicit Connection(unsigned connection_number);

  // Lets completions happen: polls the owner's queues. Called without the mutex.
  using Serve = std::function<void()>;

  // [owner, no mutex]
  void open(Shared& near, Shared& far, Rng& rng);
  void post_some(Rng& rng);
  void serve_receives(Rng& rng);
  void change_objects(Rng& rng);
  // Breaks it and opens it anew, with the same queue pairs or none yet.
  void break_it(Rng& rng, const Serve& serve);
  void close_quietly(Rng& rng, const Serve& serve);
  void close_abruptly(Rng& rng, const Serve& serve);
  bool is_open() const { return ends[0].qp != nullptr; }

  // For the watchdog; any thread.
  std::string describe();
  // Nanoseconds since something happened, 0 if nothing is outstanding.
  uint64_t stuck_ns(uint64_t now) const;
  void happened() { happened_ns_.store(now_ns_for_watchdog(), std::memory_order_relaxed); }

  const unsigned number;
  std::mutex mutex;
  std::array<End, 2> ends;

 private:
  static uint64_t now_ns_for_watchdog();
  void connect(Rng& rng);
  void quiesce();
  void flush(Rng& rng, const Serve& serve);
  void reset();
  void destroy_qps(uint64_t first, const Serve& serve);
  void unmake(bool all_told);
  template <typename Condition>
  void wait(const Serve& serve, const char* what, Condition condition);

  std::atomic<const char*> phase_{"closed"};
  std::atomic<bool> waited_for_{false};
  std::atomic<uint64_t> happened_ns_{0};
};

// Content of the pieces as one run of bytes of the stream; the first difference, if any.
void fill(const Pieces& pieces, uint64_t stream);
std::optional<uint64_t> difference(const Pieces& pieces, uint32_t length, uint64_t stream);
// Cuts `length` bytes out of a slot, in up to kMaxPieces pieces that are out of order.
Pieces cut(std::byte* slot, uint32_t length, Rng& rng);

// By Id::owner.
extern std::vector<End*> all_ends;

}  // namespace hostnic::stress
