// SPDX-License-Identifier: BSD-3-Clause
// The argument of commands about a host: its address, the number that NICs know it by, and the NIC
// that leads there. The control thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dataplane/daemon/daemon.h"
#include "protocol/expected.h"
#include "protocol/gid.h"
#include "protocol/types.h"

namespace hostnic {

// Parses the address of a host. An error is one line.
Expected<Gid, std::string> host_named(std::string_view text);

// The number of a host, held while it is asked about.
class HeldNumber {
 public:
  HeldNumber(AddressBook& book, const Gid& address, uint32_t user)
      : book_(book), user_(user), number_(book.acquire(address, user)) {}
  ~HeldNumber() {
    if (number_) book_.release(*number_, user_);
  }
  HeldNumber(const HeldNumber&) = delete;
  HeldNumber& operator=(const HeldNumber&) = delete;
  const std::optional<Ipv4Address>& number() const { return number_; }

 private:
  AddressBook& book_;
  const uint32_t user_;
  const std::optional<Ipv4Address> number_;
};

// A NIC that packets to the host may leave by, and from which of its addresses; or the one that has
// the host's address itself.
struct Candidate {
  NicInstance* nic = nullptr;
  Ipv4Address own{};
  bool is_host = false;  // the NIC has that address
  bool is_near = false;  // it is in the network of the NIC's first address
};

Candidate candidate_of(NicInstance& instance, Ipv4Address peer);

}  // namespace hostnic
