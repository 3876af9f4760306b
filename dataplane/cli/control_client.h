// SPDX-License-Identifier: BSD-3-Clause
// The `hostnic` program's side of the control socket: lists, commands and captures.
#pragma once

#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/capture_message.h"
#include "protocol/hostif/control_message.h"
#include "protocol/hostif/control_socket.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {

// Asks hostnicd for its devices. Errors are one line that names the socket.
Expected<std::vector<DeviceInfo>, std::string> list_devices(const std::string& socket_path);
// A capture that has begun: its socket, and the answer with the descriptors of the ring.
struct OpenedCapture {
  UniqueFd socket;
  ReceivedReply reply;
};
Expected<OpenedCapture, std::string> open_capture(const std::string& socket_path,
                                                  const CaptureRequest& request);
// The captures that keep packets; `wish`: they are to write them.
Expected<std::vector<CaptureState>, std::string> dump_captures(const std::string& socket_path,
                                                               bool wish);
// Runs a command as at hostnicd's prompt and returns what it shows.
Expected<std::string, std::string> run_text(const std::string& socket_path,
                                            const std::string& command);

}  // namespace hostnic::cli
