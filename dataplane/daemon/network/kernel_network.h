// SPDX-License-Identifier: BSD-3-Clause
// The kernel's interfaces and their addresses, as its rtnetlink messages tell of them: a table that
// messages are applied to, one after the other, so that nothing that happened between two of them
// is missed. Bytes come in; no system calls (network_watch.h has the socket).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/gid.h"

namespace hostnic {

class KernelNetwork {
 public:
  struct Interface {
    uint32_t index = 0;
    std::string name;
    bool enabled = false;  // its owner wants it up
    bool up = false;       // it is up and has a carrier
    // How often it lost its carrier. The kernel tells of carriers at most once a second, and then
    // how they are: of one that was lost and came back meanwhile only this count tells.
    uint32_t carrier_losses = 0;
    uint32_t mtu_bytes = 0;
    std::vector<Gid> addresses;  // that may be used: not while they are tried for duplicates
  };

  // What the messages of one datagram said beside news.
  struct Outcome {
    bool dump_ended = false;
    int error = 0;  // errno value of a refused request
  };
  // Takes in the messages of one datagram, and calls changed() after each that changed the table.
  // What is cut or makes no sense is skipped.
  Outcome apply(std::span<const std::byte> datagram, const std::function<void()>& changed);

  // The interface of this name or index, or that has this address; null: none. 127.0.0.0/8 belongs
  // to the interface that has any address in it, as a whole. Several may have the same link-local
  // address: then `preferred` is the name of the one that is asked for.
  const Interface* named(std::string_view name) const;
  const Interface* at(uint32_t index) const;
  const Interface* with(const Gid& address, std::string_view preferred = {}) const;

 private:
  bool apply_link(std::span<const std::byte> body, bool gone);
  bool apply_address(std::span<const std::byte> body, bool gone);

  std::map<uint32_t, Interface> interfaces_;
};

}  // namespace hostnic
