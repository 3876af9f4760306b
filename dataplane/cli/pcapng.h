// SPDX-License-Identifier: BSD-3-Clause
// Writes pcapng (draft-ietf-opsawg-pcapng): blocks of one section, in the byte order of this
// machine, with nanoseconds. Pure: what is written lies in a buffer until its owner takes it.
//
// DPDK has a writer as well (rte_pcapng), of mbufs and for what runs under EAL: this program has
// neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "protocol/types.h"

namespace hostnic::cli {

// An interface that packets are of.
struct PcapngInterface {
  std::string name, description;
  uint32_t snap_bytes = 0;  // kept of a packet; 0: all
};

// A packet: an Ethernet frame, or its first bytes.
struct PcapngPacket {
  uint32_t interface = 0;  // from 0, in the order of add_interface()
  TimeNs wall_ns = 0;      // since 1970
  uint32_t original_bytes = 0;
  std::span<const std::byte> bytes;
  bool sent = false;  // else received
  std::string_view comment;
};

// What is known of an interface at the end.
struct PcapngStatistics {
  uint32_t interface = 0;
  TimeNs wall_start_ns = 0, wall_end_ns = 0;
  uint64_t received = 0, dropped = 0;  // packets seen; of them, those that were not kept
  std::string_view comment;
};

class PcapngWriter {
 public:
  // Begins the section; `program` says what wrote it.
  void begin(std::string_view program);
  void add_interface(const PcapngInterface& interface);
  void add_packet(const PcapngPacket& packet);
  void add_statistics(const PcapngStatistics& statistics);

  // What was written and not taken yet.
  const std::string& buffer() const { return out_; }
  void clear() { out_.clear(); }

 private:
  void word16(uint16_t value);
  void word32(uint32_t value);
  void time(TimeNs wall_ns);
  void pad();
  void option(uint16_t code, std::string_view value);
  void option32(uint16_t code, uint32_t value);
  void option64(uint16_t code, uint64_t value);
  void option_time(uint16_t code, TimeNs wall_ns);
  size_t begin_block(uint32_t type);
  void end_block(size_t at);

  std::string out_;
};

}  // namespace hostnic::cli
