// SPDX-License-Identifier: BSD-3-Clause
// Tells hostnicd that memory has gone from this process's address space, so that an old key does
// not reach what is mapped there next, or that it has moved, so that the key follows.
//
// A change of mappings runs like this. begin_change(), before the change can be seen (interposed
// calls) or before the thread that made it may go on (the mapping watch): from then on no NIC uses
// the mem fd. end_change(), which waits for nobody. The revoker's own thread then tells every
// device, lets the NICs go on, and has the registrar forget the memory. Registrations begin only
// when nothing is left to do about changes before them, for their addresses may have become free.
//
// Its thread makes no mappings (allocates nothing) where a program has just made room, and perhaps
// is about to map something at that very place by MAP_FIXED.
//
// Nobody here waits for long for anything but the revoker's thread, and that for hostnicd and for
// whoever registers: a thread that unmaps may hold any lock of the program's (its allocator's).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <span>
#include <utility>

#include "protocol/hostif/memory_region.h"
#include "protocol/hostif/segment.h"
#include "verbs-shim/memory/raw_memory.h"

namespace hostnic::memory {

// A device context: one connection to hostnicd whose NIC reaches this process's memory.
class RegionUser {
 public:
  // The gate of the device's NIC; good until detach.
  virtual MemoryGate& memory_gate() = 0;
  // Called when the gate was opened: wakes the NIC, which may have put work off. It must not block.
  virtual void memory_gate_opened() = 0;
  // When the NIC's latest turn for this process began (CLOCK_MONOTONIC).
  virtual uint64_t nic_turn_ns() = 0;
  // Tells of a change of mappings: returns when the NIC follows it, or the device is dead.
  virtual void follow_memory(const MemoryChange& change) = 0;
  // Called when memory that was described as late is filled: tells hostnicd of those of its
  // registrations of which everything is.
  virtual void memory_filled() {}

 protected:
  ~RegionUser() = default;
};

// A change of mappings as threads of this process hand it on.
struct MappingChange : MemoryChange {
  bool noted = false;  // the registrar knows of it
};

class Revoker {
 public:
  using Follow = void (*)(const MemoryChange& change);

  // From here on, until detach() returns, the user is called (from the revoker's thread only, but
  // memory_gate_opened()). For any thread.
  void attach(RegionUser& user);
  void detach(RegionUser& user);

  // Starts the thread if it does not run. `follow` is called from it, for what is not noted yet.
  // There may be one caller at a time, which holds no lock that an unmapping thread may want.
  // Returns 0 or an errno value.
  int start(Follow follow);
  bool runs() const { return runs_.load(std::memory_order_acquire); }

  // Who notices a change: the call that makes it, or a thread that reads the kernel's reports. A
  // report that is begun when a call's change ends may be about what was there before, and is told
  // before that.
  enum class Notice { kByCall, kByReport };
  // Both are called with all signals blocked. What begin_change() returns is for end_change().
  uint64_t begin_change(Notice notice = Notice::kByCall);
  void end_change(uint64_t change, const MappingChange* parts, size_t count);
  // Returns when the registrar knows what has been reported so far, or after a moment: before a
  // call that goes by what it knows. Without the registrar's lock.
  void wait_until_known();
  // Whether there is anything that the registrar does not know yet. Works before constructors.
  static bool anything_unknown() { return unknown_reports.load(std::memory_order_acquire) != 0; }
  // Tells of changes and waits until all devices follow it. The caller holds nothing that a thread
  // which registers may want. Returns false if that takes longer than a moment (kLongestTellNs).
  bool tell(std::span<const MappingChange> changes);
  bool tell(const MappingChange& change) { return tell({&change, 1}); }

  // Has memory_filled() of all users called soon, for any thread.
  void memory_filled();

  // A registration, from before it looks at the address space until hostnicd knows it.
  class Registering {
   public:
    explicit Registering(Revoker& revoker) : revoker_(&revoker) { revoker.begin_registration(); }
    Registering() = default;
    ~Registering() {
      if (revoker_ != nullptr) revoker_->end_registration();
    }
    Registering(Registering&& other) noexcept : revoker_(other.revoker_) {
      other.revoker_ = nullptr;
    }
    Registering& operator=(Registering&& other) noexcept {
      std::swap(revoker_, other.revoker_);
      return *this;
    }

   private:
    Revoker* revoker_ = nullptr;
  };

  // Called in a forked child, which has neither the thread nor the devices.
  void forget_parent() {
    unknown_reports.store(0);
    new (this) Revoker;
  }

 private:
  class Quiet;
  void begin_registration();
  void end_registration();
  void run();
  enum class Round { kFirst, kAgain };
  void tell_devices(Round round);
  bool is_taken_again(const MappingChange& gone) const;
  void tell_filled();
  bool wait_for_registrations();
  bool take_ended_changes();
  bool is_due(uint64_t behind) const;
  void let_nics_through();
  bool nics_come_first();
  bool nics_have_looked(uint64_t since_ns);
  void close_gates();
  void open_gates_if_done();

  static inline constinit std::atomic<uint32_t> unknown_reports{0};  // of all revokers

  std::mutex users_mutex_;  // held while a user is called; before mutex_
  std::mutex mutex_;        // held for moments only
  RawVector<RegionUser*> users_, told_users_;
  struct Part {
    uint64_t number = 0;  // of its change
    MappingChange change;
  };
  struct Ended {
    uint64_t number = 0;
    uint64_t behind = 0;  // reports up to that number come first
    bool is_report = false;
    size_t place = 0;  // in the order in which devices are told
  };
  RawVector<Part> parts_;
  RawVector<MappingChange> told_;  // `told_...` are the thread's
  // Changes by number: those of which something is left to revoke or to forget, those of them that
  // have ended, and those that the thread is at.
  RawVector<uint64_t> changes_, told_changes_;
  RawVector<Ended> ended_changes_;
  RawVector<uint64_t> reports_;  // those that have not ended
  RawVector<uint64_t> unknown_;  // those that the registrar does not know yet
  RawVector<uint64_t> untold_;   // those that not all devices follow yet
  uint64_t last_change_ = 0;
  uint64_t closed_since_ns_ = 0;  // 0: the gates are open
  uint32_t closers_ = 0;          // changes that not all devices were told yet
  uint32_t registrations_ = 0;    // registrations on their way
  Follow follow_ = nullptr;
  std::atomic<bool> runs_{false}, filled_{false};
  std::atomic<uint32_t> done_{0};      // futex word: counts rounds of the thread
  std::atomic<uint32_t> work_{0};      // futex word of the thread
  std::atomic<uint32_t> finished_{0};  // futex word: counts registrations that have finished
};

}  // namespace hostnic::memory
