// SPDX-License-Identifier: BSD-3-Clause
// A client of hostnicd without the library: it writes requests, rings and queues by hand, and so
// may write what the library never does.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "protocol/hostif/control_socket.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/hostif/memory_region.h"
#include "protocol/hostif/segment_memory.h"
#include "verbs-shim/driver/segment_map.h"

namespace hostnic::hostile {

// Ends the program with a line if something that an attack needs does not work.
[[noreturn]] void give_up(const std::string& why);
inline void need(bool condition, const std::string& why) {
  if (!condition) give_up(why);
}

UniqueFd connect_to(const std::string& socket);

// Sends a command as `hostnic ctl` does; the answer's error, and its text.
struct Answer {
  int error = 0;
  std::string text;
};
Answer ask(const std::string& socket, const std::string& command,
           std::span<const int> descriptors = {});

// One open device, or the error that it was refused with.
class RawClient {
 public:
  // Opens the device; error() says what became of it.
  RawClient(const std::string& socket, uint32_t device);
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  int error() const { return error_; }
  int socket_fd() const { return socket_.get(); }
  const std::string& message() const { return message_; }
  const DeviceInfo& device() const { return device_; }
  driver::SegmentMap& map() { return map_; }
  int mirror_fd() const { return mirror_.get(); }
  std::byte* at(uint64_t offset) { return map_.at(offset); }
  bool rings_in_huge_pages() const;

  // Hands a command over and waits for its answer; nothing if hostnicd gives none in time, as when
  // it has dropped us.
  std::optional<CommandResponse> execute(Command command);
  // Hands it over, whoever answers.
  void post(const Command& command);
  void post(const SendDescriptor& descriptor);
  void kick();

  // Registers memory; the reply's key is 0, and error() set, if it is refused.
  RegisterMrReply register_memory(uint64_t va, uint64_t length_bytes,
                                  std::span<const MemoryRegion> regions,
                                  std::span<const int> files = {});
  RegisterMrReply register_memory(const void* at, uint64_t length_bytes);

  // Says that a late region's slices are filled. Returns 0 or an errno value.
  int say_filled(uint32_t lkey);

  // Says what has become of memory. Returns 0 or an errno value.
  int change_memory(const MemoryChange& change);

  // Deregisters it and waits until hostnicd has nothing of it. Returns 0 or an errno value.
  int deregister_memory(uint32_t lkey);

  // Names a host by an IPv6 address that ends in `number`. Returns 0 or an errno value.
  int name_host(uint32_t number);

  // Makes a queue pair of our own queues with `recv_entries` receives; its number, or 0.
  uint32_t create_qp(uint32_t status_index, QpType type = QpType::kRc, uint32_t recv_entries = 64);
  std::optional<CommandResponse> modify(ModifyQpCommand command);
  // Connects the queue pair with another one of the same device.
  bool connect(uint32_t qpn, uint32_t peer);
  bool dropped() const;
  // Whether hostnicd has ended the connection, which a client hears of that has no segment any
  // more.
  bool ended() const;

 private:
  int ask_about(ControlKind kind, uint32_t lkey);

  int error_ = 0;
  std::string message_;
  UniqueFd socket_, mirror_, doorbell_;
  DeviceInfo device_{};
  SegmentMemory memory_;
  UniqueFd segment_, arena_;
  driver::SegmentMap map_;
  uint32_t correlation_ = 0;
};

}  // namespace hostnic::hostile
