// SPDX-License-Identifier: BSD-3-Clause
// Any DPDK port as a NIC's port: an ordinary network interface through net_af_packet, or a physical
// adapter by its PCI address.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/daemon/ports/network_port.h"
#include "dataplane/daemon/ports/pci_adapter.h"
#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/types.h"
#include "protocol/wire/ethernet.h"

namespace hostnic {

// The bytes that an IB MTU needs of an Ethernet MTU beside the payload: IPv4 20, UDP 8, BTH 12, our
// longest extension headers 32, ICRC 4, and room to grow.
inline constexpr uint32_t kPacketOverheadBytes = 80;

// The largest IB MTU (256 .. 4096) whose packets fit an Ethernet MTU; 0: none does.
uint32_t largest_ib_mtu(uint32_t ethernet_mtu_bytes);
// The value of `key` in devargs such as "net_af_packet0,iface=veth0".
std::optional<std::string> devargs_value(const std::string& devargs, const std::string& key);

// What net_af_packet needs and a process with these effective capabilities (bits by number) has
// not, as `setcap` takes it: "cap_net_raw,cap_net_admin"; empty if nothing is missing. The driver
// sets the interface's MAC address and flags to what they are.
std::string missing_for_af_packet(uint64_t capabilities);

// What can be known of a port before EAL starts, so that bad configuration ends early.
struct PortFacts {
  uint32_t ethernet_mtu_bytes = 0;  // 0: known only after EAL has started
};
// Checks a port; an error is one line (no such interface, privilege that is missing, and what
// grants it).
Expected<PortFacts, std::string> check_ethernet_port(const std::string& devargs);
// The IB MTU for a NIC: `wanted_bytes`, or the largest that fits when that is 0. An error is one
// line with both numbers.
Expected<uint32_t, std::string> choose_ib_mtu(const std::string& nic_name,
                                              const std::string& devargs, uint32_t wanted_bytes,
                                              uint32_t ethernet_mtu_bytes);

class EthernetPort : public NetworkPort {
 public:
  // Probes, configures and starts the port; EAL must be up. `name` names the NIC in errors and the
  // packet pool. `ip` is the NIC's. `mac` is an address other than the port's own (the port then
  // turns promiscuous). An adapter whose MTU is too small for `ib_mtu_bytes` is set to what that
  // needs; 0: as it is.
  static Expected<std::unique_ptr<EthernetPort>, std::string> open(
      const std::string& name, const std::string& devargs, Ipv4Address ip,
      const std::optional<wire::MacAddress>& mac, uint32_t ib_mtu_bytes);
  ~EthernetPort() override;

  wire::MacAddress mac() const override { return mac_; }
  uint32_t ip_mtu_bytes() const override { return mtu_bytes_; }
  uint32_t speed_mbps() const override;
  std::span<const UniqueFd> sockets() const override { return sockets_; }
  // net_af_xdp's sockets may not become readable where interrupts are deferred.
  bool announces_packets() const override;

  bool is_kernels() const override { return interface_.has_value(); }
  const KernelNetwork::Interface* find_in(const KernelNetwork& network) const override {
    return network.named(*interface_);
  }
  void tell(bool carries, const KernelNetwork::Interface* interface) override;
  std::optional<DriverState> ask_driver() override;
  void leave_driver(LcoreLoop& lcore) override;
  // Opens the interface that has the name now; its MAC address may be another.
  Expected<void, std::string> come_back(LcoreLoop& lcore, Nic& nic) override;

  PortCapabilities capabilities() const override { return {}; }
  uint16_t receive(uint16_t queue, rte_mbuf** packets, uint16_t max) override;
  uint16_t transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) override;
  int peer_of(uint32_t) const override { return 0; }
  int peers() const override { return 1; }
  bool backlog() const override { return full_bursts_ >= 4; }
  PortView view() const override;

 private:
  EthernetPort() = default;
  bool read_link() const override;
  uint16_t drop(rte_mbuf** packets, uint16_t count);
  Expected<void, std::string> open_device();
  void close_device();
  void retire_buffers(bool in_use);
  std::string what_is_amiss(int error) const;
  Expected<void, std::string> probe();
  Expected<void, std::string> configure();
  Expected<uint32_t, std::string> choose_port_mtu(uint32_t largest_bytes) const;
  int start_queues(uint32_t mtu_bytes);
  void guard_registers();
  void forget_registers();
  void read_speed();
  void read_statistics();
  uint16_t keep_whole(rte_mbuf** packets, uint16_t count);
  void find_sockets(const std::vector<int>& sockets_before);
  void take_groups();
  void silence_kernel();

  std::string name_, devargs_, device_;
  Ipv4Address ip_{};
  std::optional<std::string> interface_;  // the kernel's, if there is one behind the port
  UniqueFd group_membership_;             // has the interface take multicast
  UniqueFd kernel_silence_;               // keeps the kernel from answering our packets
  std::vector<UniqueFd> sockets_;
  uint16_t port_id_ = UINT16_MAX;
  rte_mempool* rx_pool_ = nullptr;
  std::vector<rte_mempool*> old_pools_;  // packets of which the NIC may still have
  uint32_t pools_made_ = 0;
  std::optional<PciAdapter> adapter_;
  std::vector<std::byte*> registers_;  // of the adapter, which go with it
  std::atomic<bool> registers_gone_{false};
  uint32_t wanted_ib_mtu_bytes_ = 0;
  std::optional<wire::MacAddress> wanted_mac_;
  wire::MacAddress mac_{};
  std::atomic<uint32_t> mtu_bytes_{0}, speed_mbps_{0};
  std::atomic<uint64_t> dropped_{0};  // packets, for want of a link
  // What the driver has counted, by the words of PortView.
  std::atomic<uint64_t> missed_{0}, without_buffer_{0}, bad_frames_{0}, not_sent_{0};
  std::atomic<uint64_t> in_pieces_{0};
  bool attached_ = false;  // the device is the lcore's
  // Receive bursts in a row that came back full, which stands for a queue length: ethdev has no
  // cheap one for all drivers.
  uint32_t full_bursts_ = 0;
};

}  // namespace hostnic
