// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "dataplane/daemon/lcore/clock.h"

namespace hostnic {
namespace {

Unexpected<std::string> capture_failed(const char* what) {
  return Unexpected(fmt::format("the ring of the capture: {}: {}", what, strerror(errno)));
}

// Makes a file of pages that are there, and maps it. `seals` come on top of those against resizing.
Expected<void*, std::string> make_file(const char* name, uint64_t bytes, unsigned seals,
                                       UniqueFd& fd) {
  fd = UniqueFd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return capture_failed("memfd_create");
  if (const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    errno = error;
    return capture_failed("memory");
  }
  void* const at =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (at == MAP_FAILED) return capture_failed("mmap");
  madvise(at, bytes, MADV_DONTFORK);
  madvise(at, bytes, MADV_DONTDUMP);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL | seals) != 0) {
    const auto error = capture_failed("F_ADD_SEALS");
    munmap(at, bytes);
    return error;
  }
  return at;
}

}  // namespace

Expected<std::unique_ptr<Capture>, std::string> Capture::start(NicInstance& nic,
                                                               const CaptureRequest& request,
                                                               pid_t pid) {
  std::unique_ptr<Capture> capture(new Capture(nic, pid, request.ring_bytes));
  if (auto made = capture->make_memory(); !made) return Unexpected(made.error());
  auto* const header = new (capture->ring_) CaptureHeader;
  header->ring_bytes = request.ring_bytes;
  capture->tap_ =
      std::make_unique<PacketTap>(*header, *capture->index_, capture->ring_ + kCapturePageBytes,
                                  PacketTap::Settings{.snap_bytes = request.snap_bytes,
                                                      .nic_index = nic.plan.settings.index,
                                                      .clock = monotonic_now_ns});
  nic.lcore->run_on([&] { nic.nic->set_tap(capture->tap_.get()); });
  return capture;
}

Expected<void, std::string> Capture::make_memory() {
  auto ring =
      make_file("hostnic-capture", kCapturePageBytes + ring_bytes_, F_SEAL_FUTURE_WRITE, ring_fd_);
  if (!ring) return Unexpected(ring.error());
  ring_ = static_cast<std::byte*>(*ring);
  auto index = make_file("hostnic-capture-index", kCapturePageBytes, 0, index_fd_);
  if (!index) return Unexpected(index.error());
  index_ = new (*index) CaptureIndex;
  return {};
}

std::optional<CaptureState> Capture::state(bool wish) const {
  if (index_->keeps.load(std::memory_order_acquire) == 0) return std::nullopt;
  auto& wanted = std::launder(reinterpret_cast<CaptureHeader*>(ring_))->dumps_wanted;
  if (wish) wanted.fetch_add(1, std::memory_order_release);
  CaptureState state;
  state.pid = static_cast<uint32_t>(pid_);
  state.dumps_wanted = wanted.load(std::memory_order_relaxed);
  state.dumps_done = index_->dumps_done.load(std::memory_order_acquire);
  state.dump_error = index_->dump_error.load(std::memory_order_relaxed);
  const std::string& name = nic_.plan.settings.name;
  memcpy(state.nic, name.data(), std::min(name.size(), sizeof(state.nic) - 1));
  memcpy(state.file, index_->file, sizeof(state.file) - 1);
  return state;
}

Capture::~Capture() {
  if (tap_ != nullptr) nic_.lcore->run_on([&] { nic_.nic->set_tap(nullptr); });
  if (ring_ != nullptr) munmap(ring_, kCapturePageBytes + ring_bytes_);
  if (index_ != nullptr) munmap(static_cast<void*>(index_), kCapturePageBytes);
}

}  // namespace hostnic
