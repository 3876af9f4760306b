// The control socket's two ends of work: making the listening socket without stealing a living
// hostnicd's, and moving one datagram with its descriptors.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "dataplane/daemon/unique_fd.h"
#include "protocol/expected.h"
#include "protocol/hostif/control_message.h"

namespace hostnic {

// The listening socket; removes it, and releases its lock, when destroyed.
class ControlListener {
 public:
  // Makes the directory (0700) if it is missing. A socket that nobody listens on is replaced; that
  // is decided under a lock file beside it, so that two starting hostnicds don't both decide so.
  // Error: one line.
  static Expected<ControlListener, std::string> create(const std::string& path);
  ControlListener(ControlListener&&) noexcept = default;
  ControlListener& operator=(ControlListener&&) = delete;
  ~ControlListener();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

 private:
  ControlListener() = default;
  UniqueFd lock_, socket_;
  std::string path_;
};

// One received datagram.
struct ControlDatagram {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;
  bool cut = false;  // longer, or with more descriptors, than allowed
};

enum class ReceiveResult { kOk, kAgain, kClosed };
// `flags`: MSG_DONTWAIT or 0. The caller's thread only.
ReceiveResult receive_datagram(int fd, int flags, ControlDatagram& out);
// False when the peer is gone, or (MSG_DONTWAIT) doesn't read.
bool send_reply(int fd, int flags, ControlReply reply, std::span<const std::byte> payload = {},
                std::span<const int> fds = {});

}  // namespace hostnic
