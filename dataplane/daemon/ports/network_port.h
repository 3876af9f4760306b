// SPDX-License-Identifier: BSD-3-Clause
// A port to a network outside this process, as hostnicd looks at it: what the kernel or the driver
// says of its link, and how the lcore learns that packets have arrived.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dataplane/daemon/network/kernel_network.h"
#include "dataplane/nic/port.h"
#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/wire/ethernet.h"

namespace hostnic {

class LcoreLoop;
class Nic;

class NetworkPort : public Port {
 public:
  virtual wire::MacAddress mac() const = 0;
  // The largest IP packet that leaves in one piece, in bytes, when the port was opened.
  virtual uint32_t ip_mtu_bytes() const = 0;
  virtual uint32_t speed_mbps() const = 0;  // 0: unknown
  // Descriptors that become readable when packets arrive; none: unknown.
  virtual std::span<const UniqueFd> sockets() const = 0;
  // Whether the sockets surely become readable.
  virtual bool announces_packets() const = 0;
  // Whether the port has a link. [any thread]
  bool link_up() const {
    const Told told = told_.load(std::memory_order_relaxed);
    return told == Told::kNothing ? read_link() : told == Told::kUp;
  }

  // The IB MTU of the NIC, and the smaller one whose packets still fit when the interface's MTU has
  // been lowered. [any thread]
  uint32_t ib_mtu_bytes() const { return ib_mtu_bytes_.load(std::memory_order_relaxed); }
  void set_ib_mtu_bytes(uint32_t bytes) { ib_mtu_bytes_.store(bytes, std::memory_order_relaxed); }
  // How often the NIC's GID table has changed, or its own address has gone from the kernel's
  // interfaces or come back. [any thread]
  uint32_t address_changes() const { return address_changes_.load(std::memory_order_relaxed); }

  // -- What NetworkWatch tells and asks of ports on the kernel's interfaces; its control thread
  //    only.
  // Whether the port is on an interface, or an address, of the kernel's.
  virtual bool is_kernels() const { return false; }
  // Whether the NIC's address is the kernel's: it is gone when no interface has it.
  virtual bool has_kernels_address() const { return false; }
  // The interface that carries the port now; null: none.
  virtual const KernelNetwork::Interface* find_in(const KernelNetwork&) const { return nullptr; }
  // Says what the interface is like, unless it is gone (null). `carries`: packets can leave.
  virtual void tell(bool carries, const KernelNetwork::Interface*) {
    told_.store(carries ? Told::kUp : Told::kDown, std::memory_order_relaxed);
  }
  void note_address_change() { address_changes_.fetch_add(1, std::memory_order_relaxed); }
  // Says that the interface, or the address, has come back, perhaps as another one of the same
  // name, under this NIC. The lcore is told by tasks. An error is one line.
  virtual Expected<void, std::string> come_back(LcoreLoop&, Nic&) { return {}; }
  // Opens a socket for another address of the NIC's, which the interface has, and closes it. The
  // lcore is told by tasks. An error is one line.
  virtual Expected<void, std::string> open_address(LcoreLoop&, const Gid&, Ipv4Address /*number*/,
                                                   const KernelNetwork::Interface&) {
    return Unexpected("the port has one address");
  }
  virtual void close_address(LcoreLoop&, Ipv4Address /*number*/) {}
  // The destination of a packet that was longer than the way there allows, if there was one since
  // this was last asked.
  virtual std::optional<Ipv4Address> take_too_long() { return std::nullopt; }
  // -- What AdapterWatch asks of ports that a driver of DPDK's has to itself; its control thread
  // only.
  struct DriverState {
    bool is_adapter = false;  // on the PCI bus, and not another process's end of a link
    bool is_there = true;
    bool link_up = true;
  };
  // Asks the driver for the link, and for what it counts, which view() shows. No value: the kernel
  // tells.
  virtual std::optional<DriverState> ask_driver() { return std::nullopt; }
  // Has the lcore leave the driver alone, whose adapter is gone.
  virtual void leave_driver(LcoreLoop&) {}

  // How many packets found no room where they arrive, and how much there is, in bytes. [any thread]
  virtual uint64_t found_full() const { return 0; }
  virtual uint32_t receive_buffer_bytes() const { return 0; }

 protected:
  // Asks the driver or the kernel; used while nobody tells.
  virtual bool read_link() const = 0;
  bool told_down() const { return told_.load(std::memory_order_relaxed) == Told::kDown; }

 private:
  enum class Told : uint8_t { kNothing, kDown, kUp };
  std::atomic<Told> told_{Told::kNothing};
  std::atomic<uint32_t> ib_mtu_bytes_{0}, address_changes_{0};
};

}  // namespace hostnic
