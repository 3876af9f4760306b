// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/ports/pci_adapter.h"

#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace hostnic {

std::optional<PciAdapter> PciAdapter::named_in(const std::string& devargs,
                                               const std::string& devices) {
  const std::string device = devargs.substr(0, devargs.find(','));
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  int used = 0;
  const char* const text = device.c_str();
  if (sscanf(text, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &used) != 4) {
    domain = 0;
    used = 0;
    if (sscanf(text, "%2x:%2x.%1x%n", &bus, &slot, &function, &used) != 3) return std::nullopt;
  }
  if (static_cast<size_t>(used) != device.size()) return std::nullopt;
  const std::string address = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, slot, function);
  return PciAdapter(address, devices + "/" + address);
}

bool PciAdapter::is_there() const { return access(directory_.c_str(), F_OK) == 0; }

std::string PciAdapter::kernel_driver() const {
  std::error_code error;
  const auto driver = std::filesystem::read_symlink(directory_ + "/driver", error);
  return error ? std::string() : driver.filename().string();
}

// An IOMMU group without an IOMMU is vfio's unsafe mode, which says so in its name only.
bool PciAdapter::needs_huge_pages() const {
  const std::string driver = kernel_driver();
  if (driver.starts_with("mlx")) return false;
  return driver != "vfio-pci" || access((directory_ + "/iommu").c_str(), F_OK) != 0;
}

std::vector<std::span<std::byte>> PciAdapter::mapped_registers(const std::string& maps) const {
  std::vector<std::span<std::byte>> mapped;
  const std::string resource = "/" + address_ + "/resource";
  std::ifstream file(maps);
  for (std::string line; std::getline(file, line);) {
    uintptr_t from = 0, to = 0;
    if (line.find(resource) == std::string::npos ||
        sscanf(line.c_str(), "%lx-%lx", &from, &to) != 2)
      continue;
    mapped.emplace_back(reinterpret_cast<std::byte*>(from), to - from);
  }
  return mapped;
}

std::string PciAdapter::what_is_amiss() const {
  if (!is_there())
    return fmt::format("there is no PCI device {} (`lspci -D` lists them)", address_);
  const std::string driver = kernel_driver();
  if (driver == "vfio-pci" || driver == "uio_pci_generic" || driver == "igb_uio") return {};
  return fmt::format("it is bound to {}; `dpdk-devbind.py -b vfio-pci {}` gives it to DPDK",
                     driver.empty() ? "no driver" : driver, address_);
}

}  // namespace hostnic
