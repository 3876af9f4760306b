// SPDX-License-Identifier: BSD-3-Clause
// A PCI adapter as Linux shows it: whether it is there, which kernel driver has it, and where its
// registers are mapped. For any thread; nothing of DPDK is asked.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hostnic {

class PciAdapter {
 public:
  // The adapter that devargs such as "0000:3b:00.0" or "3b:00.0,key=value" name; no value: they
  // name none.
  static std::optional<PciAdapter> named_in(const std::string& devargs,
                                            const std::string& devices = "/sys/bus/pci/devices");

  // As DPDK and /sys have it, with the domain.
  const std::string& address() const { return address_; }
  bool is_there() const;
  // The kernel's driver that the adapter is bound to: vfio-pci, e1000e, ...; empty: none.
  std::string kernel_driver() const;
  // Whether the adapter reaches this process's memory by physical addresses, as nothing translates
  // them: DPDK has no others for huge pages alone.
  bool needs_huge_pages() const;
  // Finds the registers that are mapped here, by the lines of a file such as /proc/self/maps. Those
  // that vfio maps are not among them: vfio keeps an adapter until it is given back.
  std::vector<std::span<std::byte>> mapped_registers(
      const std::string& maps = "/proc/self/maps") const;
  // Says why DPDK does not drive it, as far as can be seen, and the remedy; empty if nothing is
  // amiss.
  std::string what_is_amiss() const;

 private:
  PciAdapter(std::string address, std::string directory)
      : address_(std::move(address)), directory_(std::move(directory)) {}

  std::string address_, directory_;
};

}  // namespace hostnic
