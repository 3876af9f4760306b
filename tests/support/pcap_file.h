// SPDX-License-Identifier: BSD-3-Clause
// Reads captures: files in the format of libpcap, little-endian, of Ethernet frames.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hostnic::pcap {

using Frame = std::vector<std::byte>;

// Returns the frames of a capture in their order; throws std::runtime_error if the file is none, or
// if one of its frames was cut.
std::vector<Frame> read_frames(const std::string& path);

}  // namespace hostnic::pcap
