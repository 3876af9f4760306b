// SPDX-License-Identifier: BSD-3-Clause
// RDMA netlink's answers: what the kernel's device netlink does with a datagram of requests. Pure;
// any thread that may ask the objects.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "protocol/nldev/message.h"
#include "protocol/nldev/objects.h"

namespace hostnic::nldev {

// The program that asks, and what it has set on its socket.
struct Asker {
  uint32_t port_id = 0;
  bool short_acks = false;      // NETLINK_CAP_ACK: an error does not repeat its request
  bool wants_words = false;     // NETLINK_EXT_ACK: an error says why in words
  bool sees_one_host = false;   // his host has NICs of its own: netns mode "exclusive"
  uint32_t rdma_cm_device = 0;  // dev_t of /dev/infiniband/rdma_cm as he sees it
  uint32_t verbs_device = 0;    // and of uverbsK
};

// Why what would change something is refused; a program's user reads it on stderr, too.
enum class Refusal : uint32_t { kNone, kNewLink, kDeleteLink, kSet, kSystem, kCounters };
std::string_view words_of(Refusal refusal);  // empty: kNone, or no such refusal

struct Answer {
  Bytes messages;  // datagrams_of() cuts them
  Refusal refused = Refusal::kNone;
};

// A datagram is at most so long, and so many of its requests are answered: each may be for a long
// list.
inline constexpr size_t kMostRequestBytes = 16 * 1024;
inline constexpr uint32_t kMostRequests = 16;

Answer answer(std::span<const std::byte> datagram, const Asker& asker, const Objects& objects);

// What those get whose requests nobody can answer; `error` is an errno value.
Bytes refuse_all(std::span<const std::byte> datagram, const Asker& asker, int error);

}  // namespace hostnic::nldev
