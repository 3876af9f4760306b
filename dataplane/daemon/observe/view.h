// SPDX-License-Identifier: BSD-3-Clause
// A view: a further socket whose programs see one NIC alone, by a name of its own (hnic0), as if
// its host were another machine (hostnic lab --hosts --port wire).
#pragma once

#include <string>
#include <string_view>

#include "protocol/hostif/control_message.h"

namespace hostnic {

struct View {
  size_t nic = 0;  // its place among hostnicd's
  std::string nic_name;
  std::string netdev;  // the interface that has its address; empty: none is known
  std::string socket_path;
  std::string shown_name = "hnic0";

  // What a program is told of the NIC.
  DeviceInfo shown(DeviceInfo info) const;
  // A command from there, which names the NIC as it is shown.
  std::string command(std::string_view text) const { return renamed(text, shown_name, nic_name); }
  std::string answer(std::string_view text) const { return renamed(text, nic_name, shown_name); }

 private:
  // Replaces a word by another.
  static std::string renamed(std::string_view text, std::string_view from, std::string_view to);
};

}  // namespace hostnic
