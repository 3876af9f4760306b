// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/view.h"

#include <cctype>
#include <cstdio>

namespace hostnic {
namespace {

bool in_word(std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  const char c = text[at];
  return isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

}  // namespace

DeviceInfo View::shown(DeviceInfo info) const {
  snprintf(info.name, sizeof info.name, "%s", shown_name.c_str());
  info.index = 0;
  if (!netdev.empty()) snprintf(info.netdev, sizeof info.netdev, "%s", netdev.c_str());
  return info;
}

std::string View::renamed(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  while (!text.empty()) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    const bool whole = (at == 0 || !in_word(text, at - 1)) && !in_word(text, at + from.size());
    result += text.substr(0, at);
    result += whole ? to : from;
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

}  // namespace hostnic
