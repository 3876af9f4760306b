// SPDX-License-Identifier: BSD-3-Clause
// A switch, as one NIC sees what arrives: packets and time in, decisions out. In front of the NIC
// is a port with a rate and a queue; in front of that, if there is a core, as many parallel paths,
// each with a rate and a queue of its own (switch_spec.h). Each NIC has its own port, and its own
// link from each path: what goes to one NIC never waits for what goes to another.
//
// Whatever finds a queue longer than the ECN threshold is marked. Whatever finds it full is
// dropped, or trimmed, if PacketOps can: then its headers go before all that has its payload, in a
// queue of the same length, and as many bytes are taken from the link's rate. The packets that wait
// already keep the time that they were told, so for the length of those headers the link is faster
// than it is, and slower afterwards.
//
// Buffer ownership: arrive() takes the packet, take() and drain() give it back, everything else
// goes to Ops::release. One thread, the NIC's lcore. Nothing is allocated after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "protocol/impair/rate_limiter.h"
#include "protocol/impair/release_heap.h"
#include "protocol/impair/switch_spec.h"

namespace hostnic::impair {

// What a link of a switch has done, since it was made or the counters were cleared.
struct LinkCounters {
  uint64_t packets = 0;        // sent on, trimmed ones included
  uint64_t bytes = 0;          // of these, with headers
  uint64_t dropped = 0;        // found the queue full
  uint64_t marked = 0;         // ECN
  uint64_t trimmed = 0;        // found the queue full and lost their payload
  uint64_t longest_queue = 0;  // packets

  // Calls visit(name, value) for each counter.
  template <class Visit>
  void for_each(Visit&& visit) const {
    visit("packets", packets);
    visit("bytes", bytes);
    visit("dropped", dropped);
    visit("marked", marked);
    visit("trimmed", trimmed);
    visit("longest_queue", longest_queue);
  }
};

class SwitchModel {
 public:
  // What the switch does to packet buffers. The object outlives the model.
  class Ops {
   public:
    // Marks a packet as having met congestion. Returns false if its sender does not allow that.
    virtual bool mark(void* packet) = 0;
    // Cuts a packet's payload off; returns the bytes that are left. Returns 0 if its transport
    // would not understand that: then the packet is as it was.
    virtual uint32_t trim(void* packet) = 0;
    virtual void release(void* packet) = 0;

   protected:
    ~Ops() = default;
  };

  // `spec` is of a switch that is there, as parse_switch() has checked it.
  SwitchModel(const SwitchSpec& spec, Ops& ops);
  // Releases the packets that still wait.
  ~SwitchModel();
  SwitchModel(const SwitchModel&) = delete;
  SwitchModel& operator=(const SwitchModel&) = delete;

  // Takes a packet of `bytes`, headers included, at `now`, which goes by `path`, a number as
  // path_of() gives it. A time earlier than a previous call's is taken for that one's.
  void arrive(void* packet, uint32_t bytes, uint32_t path, TimeNs now);
  // Takes out packets that have left the port at `now`, in their order; returns how many. More may
  // be due if `out` came back full.
  size_t take(std::span<void*> out, TimeNs now);
  // When something happens next; kForever if nothing waits.
  TimeNs next_deadline_ns() const;
  // How many packets wait, on paths and at the port.
  size_t waiting() const { return waiting_; }

  const SwitchSpec& spec() const { return spec_; }
  const LinkCounters& port() const { return port_.counters; }
  // That of the path of this number, from 1 to spec().plan.paths.
  const LinkCounters& path(uint32_t number) const { return paths_[number - 1].counters; }
  void clear_counters();

 private:
  struct Entry {
    void* packet;
    uint32_t bytes;
    bool trimmed;
  };
  struct Link {
    Link(uint64_t bits_per_second, uint32_t queue_packets)
        : queue(bits_per_second, queue_packets), trimmed(bits_per_second, queue_packets) {}
    RateLimiter queue, trimmed;
    LinkCounters counters;
  };

  void enter(Link& link, ReleaseHeapOf<Entry>& behind, Entry entry, TimeNs now);
  bool enter_trimmed(Link& link, ReleaseHeapOf<Entry>& behind, const Entry& entry, TimeNs now);
  void drop(Link& link, const Entry& entry);
  void move_on(TimeNs now);

  const SwitchSpec spec_;
  Ops& ops_;
  Link port_;
  std::vector<Link> paths_;
  ReleaseHeapOf<Entry> on_paths_, at_port_;
  size_t waiting_ = 0;
  TimeNs last_now_ns_ = 0;
};

}  // namespace hostnic::impair
