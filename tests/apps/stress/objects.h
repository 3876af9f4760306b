// SPDX-License-Identifier: BSD-3-Clause
// Verbs objects that several connections and threads share: each lives until its last user lets go,
// and must then be destroyable.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/apps/verify/rng.h"

namespace hostnic::stress {

using verify::Rng;

class End;

constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// An open device, and the thread that takes its asynchronous events.
class Device {
 public:
  Device(const std::string& device_name, unsigned number);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Whose receives of shared queues these are: they are named by the queue pair alone.
  void enter(uint32_t qpn, End* end);
  void leave(uint32_t qpn);
  End* find(uint32_t qpn);

  const std::string name;
  ibv_context* const context;
  ibv_gid gid{};

 private:
  void take_events(const std::stop_token& stop);
  void handle(const ibv_async_event& event);

  std::mutex mutex_;
  std::unordered_map<uint32_t, End*> by_qpn_;
  std::jthread events_;
};

class Pd {
 public:
  explicit Pd(Device& of);
  ~Pd();
  Device& device;
  ibv_pd* const pd;
};

// Memory of one of the kinds that registration treats differently: private pages, the heap, a
// shared file.
class Memory {
 public:
  Memory(size_t length_bytes, Rng& rng);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_;
  void* heap_ = nullptr;  // of malloc; null: mapped
};

class Mr {
 public:
  Mr(std::shared_ptr<Pd> of, const Memory& memory);
  ~Mr();
  const std::shared_ptr<Pd> pd;
  ibv_mr* const mr;
};

class Window {
 public:
  Window(std::shared_ptr<Mr> of, ibv_mw_type type);
  ~Window();
  const std::shared_ptr<Mr> mr;  // regions with bound windows must stay
  ibv_mw* const mw;
  uint32_t rkey = 0;
  bool usable = false;
};

// A completion queue and the way its completions go to their queue pairs. Ordered: one thread at a
// time polls and hands on, so that the order of a queue pair's completions can be checked. Else
// several do at once.
class Cq {
 public:
  Cq(Device& of, unsigned entries, bool ordered_dispatch, bool with_channel);
  ~Cq();

  // Room for so many completions; false: not enough left.
  bool reserve(unsigned entries);
  void release(unsigned entries) { reserved_.fetch_sub(entries); }
  // Takes and hands on some completions; how many.
  int poll(Rng& rng);
  // Arms, looks again, and waits a little for an event; how many completions it took.
  int wait(Rng& rng);
  // Returns when all completions that any thread has polled are handed on.
  void quiesce();
  // The same, and those that are in the queue now as well.
  void drain(Rng& rng);

  Device& device;
  const bool ordered;
  bool has_channel() const { return channel_ != nullptr; }
  ibv_cq* cq() const { return cq_; }

 private:
  int poll_now(Rng& rng);

  const unsigned entries_;
  std::atomic<unsigned> reserved_{0};
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::mutex gate_;  // taken before busy_: who waits for it exclusively isn't overtaken for ever
  std::shared_mutex busy_;
};

// A shared receive queue with its own domain and memory; every slot is always posted, unless its
// completion is being looked at.
class Srq {
 public:
  static constexpr unsigned kSlots = 64;
  static constexpr unsigned kSlotBytes = 4096;

  Srq(Device& device, Rng& rng);
  ~Srq();

  // The slot's bytes; dies if it was not posted.
  std::span<std::byte> take(uint32_t slot);
  void post(uint32_t slot);
  ibv_srq* srq() const { return srq_; }

 private:
  Memory memory_;
  std::shared_ptr<Pd> pd_;
  std::unique_ptr<Mr> mr_;
  ibv_srq* srq_;
  std::mutex mutex_;
  std::vector<bool> posted_;
};

// What connections of one device may share, replaced now and then.
class Shared {
 public:
  static constexpr unsigned kCqEntries = 8192;

  Shared(Device& of, Rng& rng);
  std::shared_ptr<Pd> pd(Rng& rng);
  std::shared_ptr<Cq> cq(Rng& rng);
  std::shared_ptr<Srq> srq(Rng& rng);
  // One of each is made anew; the old ones go with their last users.
  void replace(Rng& rng);

  Device& device;

 private:
  static std::shared_ptr<Cq> make_cq(Device& device, Rng& rng);

  std::mutex mutex_;
  std::vector<std::shared_ptr<Pd>> pds_;
  std::vector<std::shared_ptr<Cq>> cqs_;
  std::vector<std::shared_ptr<Srq>> srqs_;
};

// Who a work request is of. Requests of shared receive queues name their slot only.
enum class Kind : uint8_t { kSend, kReceive, kSharedReceive, kLane };
constexpr uint32_t kLifeMask = 0x3fff;
struct Id {
  Kind kind;
  uint16_t owner;
  uint16_t life;  // of the owner's queue pairs
  uint32_t number;
  constexpr uint64_t word() const {
    return uint64_t{static_cast<uint8_t>(kind)} << 62 | uint64_t{owner} << 46 |
           uint64_t{life & kLifeMask} << 32 | number;
  }
  static constexpr Id of(uint64_t word) {
    return {static_cast<Kind>(word >> 62), static_cast<uint16_t>(word >> 46),
            static_cast<uint16_t>(word >> 32 & kLifeMask), static_cast<uint32_t>(word)};
  }
};

// Hands one completion to whom it is for. [Cq::poll]
void dispatch(Cq& cq, const ibv_wc& wc);

}  // namespace hostnic::stress
