// SPDX-License-Identifier: BSD-3-Clause
// A real NIC with one client segment, its QPs and one memory region, on any port. The benchmark
// plays the driver.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dataplane/nic/nic.h"
#include "verbs-shim/driver/segment_map.h"

namespace hostnic::bench {

inline constexpr uint32_t kMtuBytes = 4096;
inline constexpr double kPoolScale = 0.25;
inline constexpr uint32_t kOutstandingReads = 16;

Ipv4Address address_of(uint32_t index);

// Takes everything that is sent and forgets it.
class NullPort : public Port {
 public:
  uint64_t transmitted() const { return transmitted_; }

  PortCapabilities capabilities() const override {
    return {.needs_icrc = false,
            .needs_arp = false,
            .allows_external_payload = true,
            .delivers_whole_bth = true};
  }
  uint16_t receive(uint16_t, rte_mbuf**, uint16_t) override { return 0; }
  uint16_t transmit(uint16_t, rte_mbuf** packets, uint16_t count) override;
  int peer_of(uint32_t) const override { return 0; }
  int peers() const override { return 1; }
  bool backlog() const override { return false; }
  PortView view() const override { return {}; }

 protected:
  uint64_t transmitted_ = 0;
};

// Page aligned bytes, touched. `seed` 0: zeros, else something that differs from byte to byte.
class Buffer {
 public:
  Buffer(size_t bytes, uint8_t seed);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }

 private:
  size_t bytes_;
  std::byte* data_;
};

struct NicBenchSettings {
  uint32_t index = 0;
  uint32_t qps = 1;
  bool with_icrc = false;     // packets carry an ICRC: payload is copied into them
  bool segmentation = false;  // offload, where the port carries bundles
  Transport transport = Transport::kHostnic;
  const MbufPools* pools = nullptr;  // shared with other NICs; null: its own
};

// Throws std::runtime_error when something can't be set up.
class NicBench {
 public:
  NicBench(Port& port, const Buffer& memory, const NicBenchSettings& settings = {});
  ~NicBench();
  NicBench(const NicBench&) = delete;
  NicBench& operator=(const NicBench&) = delete;

  // Brings all QPs to RTS, each with the peer's of the same place. Starting PSNs are 0 on both
  // sides.
  void connect(uint32_t peer_index, std::span<const uint32_t> peer_qpns, uint32_t path_mtu_bytes);
  std::span<const uint32_t> qpns() const { return qpns_; }
  uint32_t key() const { return key_; }  // of the memory, local and remote
  // One chunk of a WRITE that is a message of its own, from offset `at` of our memory to the same
  // offset of the peer's, and wants an ACK. By the first QP.
  SendDescriptor make_write(Psn psn, uint64_t at, uint32_t length_bytes, uint64_t peer_address,
                            uint32_t peer_key) const;
  // A READ of the first QP's that asks for no ACK, but for what number_read() says: which it is,
  // and where the answers land.
  SendDescriptor make_read(uint32_t length_bytes, uint64_t peer_address, uint32_t peer_key);
  void number_read(SendDescriptor& d, uint32_t number, Psn psn, Psn first_response_psn,
                   uint64_t at);
  // False: no room for all of them in the send ring.
  bool post(std::span<const SendDescriptor> descriptors) {
    return segment_.sends.enqueue_bulk(descriptors.data(),
                                       static_cast<uint32_t>(descriptors.size()));
  }
  // Takes reports as a driver does. How many there were.
  uint32_t take_reports();
  // Of a QP's requests: all before it have been acknowledged.
  Psn acknowledged(uint32_t qp = 0) { return Psn(segment_.qp_status(qp).una_psn); }
  // The same of the first QP's answers.
  Psn answered() { return Psn(segment_.qp_status(0).response_una_psn); }
  void poll() { nic_->poll(now_ns_ += 1000); }
  uint64_t counter(Counter counter) const { return nic_->counters().get(counter); }

 private:
  CommandResponse execute(Command command);

  const Buffer& memory_;
  MbufPools own_pools_;
  MrTable mrs_{16};
  std::unique_ptr<ClientChannel> channel_;
  driver::SegmentMap segment_;
  std::unique_ptr<Nic> nic_;
  uint32_t key_ = 0;
  std::vector<uint32_t> qpns_;
  std::vector<uint64_t> read_destinations_;  // by QP, in the segment
  TimeNs now_ns_ = 1'000'000'000;
};

}  // namespace hostnic::bench
