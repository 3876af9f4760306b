// SPDX-License-Identifier: BSD-3-Clause
// Whether a host answers on the kernel's network: what `ip route get` and `ip neighbour get` say.
// For ports whose packets the kernel sends, where the NIC's own ARP table knows nobody.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "protocol/gid.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

// What rtnetlink's answer to a question for one route says. Nothing: it makes no sense.
struct KernelRoute {
  bool is_unicast = false;  // else this host's own, a group's or refused: nobody has to answer
  uint32_t interface_index = 0;
  std::optional<Gid> gateway;       // nothing: the destination is on the link
  bool gateway_is_foreign = false;  // it is of the other family, which is not looked up
};
std::optional<KernelRoute> parse_route(std::span<const std::byte> answer);

// What rtnetlink's answer to a question for one neighbour says: NUD_... flags. Nothing: it makes no
// sense.
std::optional<uint16_t> parse_neighbour(std::span<const std::byte> answer);

class KernelNeighbours {
 public:
  enum class Known : uint8_t {
    kYes,      // it has answered, or need not, or the kernel does not say
    kNotYet,   // it is being asked
    kUnasked,  // nobody asks it now: call ask()
  };
  // Looks a destination up, towards which packets leave from `own`. Does not block.
  Known look_up(const Gid& own, const Gid& destination, uint32_t interface_index);
  // Makes the kernel ask for the destination's link address, by an empty datagram to its discard
  // port (RFC 863): without a privilege there is no other way.
  static void ask(const Gid& own, const Gid& destination, uint32_t interface_index);

 private:
  std::optional<std::span<const std::byte>> exchange(std::span<const std::byte> request);

  UniqueFd socket_;
  uint32_t sequence_ = 0;
  int error_ = 0;  // why the last exchange had no answer
  alignas(8) std::byte answer_[4096];
};

}  // namespace hostnic
