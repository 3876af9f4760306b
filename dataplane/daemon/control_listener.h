// Making the listening socket, without stealing a living hostnicd's.
#pragma once

#include <string>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

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

}  // namespace hostnic
