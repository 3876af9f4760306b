// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/cm/device_number.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "protocol/hostif/unique_fd.h"
#include "verbs-shim/base/cancellation.h"

namespace hostnic::cm_device {

std::optional<unsigned> minor_in(std::string_view misc_devices) {
  while (!misc_devices.empty()) {
    const size_t end = std::min(misc_devices.find('\n'), misc_devices.size());
    std::string_view line = misc_devices.substr(0, end);
    misc_devices.remove_prefix(std::min(end + 1, misc_devices.size()));
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    unsigned number = 0;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (error == std::errc() && line.substr(rest - line.data()) == " rdma_cm") return number;
  }
  return std::nullopt;
}

unsigned device_minor() noexcept {
  const int saved_errno = errno;
  const CancellationOff cancellation_off;  // fstat() is no cancellation point
  // Some twenty bytes for each of 256 devices at most.
  char text[8192];
  size_t size = 0;
  const UniqueFd file(open("/proc/misc", O_RDONLY | O_CLOEXEC));
  while (file && size < sizeof(text)) {
    const ssize_t got = read(file.get(), text + size, sizeof(text) - size);
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  errno = saved_errno;
  return minor_in({text, size}).value_or(kAnyMinor);
}

}  // namespace hostnic::cm_device
