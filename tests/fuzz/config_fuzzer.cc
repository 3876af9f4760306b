// SPDX-License-Identifier: BSD-3-Clause
// Any bytes are either a consistent configuration or an error that is one line. The first byte
// chooses between the file and the --nic option.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "config/config.h"

namespace {

using namespace hostnic;
using namespace hostnic::config;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const ConfigError& error) {
  const std::string text = error.text();
  require(!error.message.empty());
  for (const char c : text) require(c >= ' ' && c <= '~');
}

void check(const NicConfig& nic) {
  require(!nic.name.empty() && nic.name.size() <= kMaxNameBytes && !nic.port.empty());
  require(nic.prefix_length >= 1 && nic.prefix_length <= 128 && nic.ip != Gid{});
  require((nic.mac[0] & 1) == 0);
  require(nic.mtu_bytes <= 4096);
  // What the port carries decides otherwise, and so it may where the address decides on the port.
  if (nic.on_wire() && !nic.port_by_address) require(nic.mtu_bytes >= 256);
  require(nic.window >= 32 && nic.window <= 4096 && (nic.window & (nic.window - 1)) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const auto nic = parse_nic_option(text, data[0] / 2);
    nic ? check(*nic) : check(nic.error());
    return 0;
  }
  const auto config = parse_config(text, "fuzz.toml");
  if (!config) {
    check(config.error());
    require(config.error().line >= 1 && config.error().column >= 1);
    return 0;
  }
  for (const NicConfig& nic : config->nics) check(nic);
  require(!check_nics(config->nics));
  return 0;
}
