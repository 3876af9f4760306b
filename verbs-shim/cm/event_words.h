// SPDX-License-Identifier: BSD-3-Clause
// What an event of rdma_cm that ends an attempt means, and why a command is refused, in words: the
// program has a number only. Pure functions, for any thread; bytes may be any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hostnic::cm_device {

// The events that end an attempt, by their numbers in rdma_cma_event_type, whose header does not go
// together with the kernel's.
enum FailureEvent : uint32_t {
  kAddrError = 1,
  kRouteError = 3,
  kConnectError = 6,
  kUnreachable = 7,
  kRejected = 8,
};

// Names a socket address, of which `address` may be only the beginning: "127.0.0.1, port 7", or
// "127.0.0.1" where the port is 0. An empty text says that there is none.
std::string address_words(std::span<const std::byte> address);
// Puts an event and its status (negative errno values, or InfiniBand's reason for a rejection) into
// words; `to` is what address_words() says of the id's destination. An empty text says that it is
// no failure.
std::string event_words(uint32_t event, int32_t status, const std::string& to);
// Says why a command was refused. An empty text says that nothing more than its errno is known.
std::string refused_words(uint32_t command, std::span<const std::byte> bytes, int error);

}  // namespace hostnic::cm_device
