// SPDX-License-Identifier: BSD-3-Clause
// One running `hostnic capture` of one NIC: the ring that the NIC's lcore writes and another
// process reads, and the socket whose end ends it. Control thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "dataplane/daemon/daemon.h"
#include "dataplane/nic/egress/packet_tap.h"
#include "protocol/expected.h"
#include "protocol/hostif/capture_message.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

class Capture {
 public:
  // Makes the ring, all of whose pages are there from now on, and has the NIC capture. `pid` is for
  // people. An error is one line.
  static Expected<std::unique_ptr<Capture>, std::string> start(NicInstance& nic,
                                                               const CaptureRequest& request,
                                                               pid_t pid);
  // Ends it: what the ring has stays readable.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  const NicInstance& nic() const { return nic_; }
  pid_t pid() const { return pid_; }
  // Descriptors of the ring and of the reader's page.
  int ring_fd() const { return ring_fd_.get(); }
  int index_fd() const { return index_fd_.get(); }
  // What it keeps, and where: of a capture that keeps packets until they are wanted. `wish`: they
  // are.
  std::optional<CaptureState> state(bool wish) const;
  // The socket of who captures.
  int socket() const { return socket_.get(); }
  void set_socket(UniqueFd socket) { socket_ = std::move(socket); }
  UniqueFd take_socket() { return std::move(socket_); }

 private:
  Capture(NicInstance& nic, pid_t pid, uint64_t ring_bytes)
      : nic_(nic), pid_(pid), ring_bytes_(ring_bytes) {}
  Expected<void, std::string> make_memory();

  NicInstance& nic_;
  const pid_t pid_;
  const uint64_t ring_bytes_;
  UniqueFd socket_, ring_fd_, index_fd_;
  std::byte* ring_ = nullptr;
  CaptureIndex* index_ = nullptr;
  std::unique_ptr<PacketTap> tap_;
};

}  // namespace hostnic
