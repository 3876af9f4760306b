// SPDX-License-Identifier: BSD-3-Clause
// A NIC that `hostnic capture` captures.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/capture_message.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/types.h"

namespace hostnic::cli {

// One NIC that is captured: its ring, mapped, and the socket that keeps the capture going.
class CaptureSource {
 public:
  // Begins to capture; an error is one line.
  static Expected<std::unique_ptr<CaptureSource>, std::string> open(const std::string& path,
                                                                    uint32_t device_index,
                                                                    const CaptureRequest& wanted);
  ~CaptureSource() {
    if (ring_ != MAP_FAILED) munmap(ring_, ring_bytes_ + kCapturePageBytes);
    if (index_ != MAP_FAILED) munmap(index_, kCapturePageBytes);
  }
  CaptureSource(const CaptureSource&) = delete;
  CaptureSource& operator=(const CaptureSource&) = delete;

  const DeviceInfo& device() const { return device_; }
  // The device's name, behind that of its host.
  const std::string& name() const { return name_; }
  void set_host(const std::string& host) {
    name_ = host.empty() ? device_.name : host + ":" + device_.name;
  }
  const std::vector<std::string>& counters() const { return counters_; }
  const CaptureHeader& header() const { return *static_cast<const CaptureHeader*>(ring_); }
  int socket() const { return socket_.get(); }
  bool ended() const { return header().ended.load(std::memory_order_acquire) != 0; }
  void end() const { ::shutdown(socket_.get(), SHUT_RDWR); }

  // The record at the front of the ring; null: there is none now. It stays until drop().
  const CaptureRecord* front() {
    if (!has_record_ && !broken_) {
      const auto result = reader_->next(record_, bytes_);
      has_record_ = result == CaptureReader::Result::kRecord;
      broken_ = result == CaptureReader::Result::kBroken;
    }
    return has_record_ ? &record_ : nullptr;
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  void drop() { has_record_ = false; }
  bool broken() const { return broken_; }

  // Says that packets are kept, and where they will be written.
  void announce_keeping(const std::string& file);
  // Whether somebody wants what is kept, since it was last asked.
  bool take_wish();
  // That wish is fulfilled.
  void fulfil(bool well);
  // The process of a program that has died since it was last asked; 0: none has.
  uint32_t take_death();

  TimeNs started_ns = 0;  // since 1970
  uint64_t written = 0;
  bool closed = false;  // by hostnicd

 private:
  CaptureSource() = default;

  UniqueFd socket_;
  void* ring_ = MAP_FAILED;
  void* index_ = MAP_FAILED;
  uint64_t ring_bytes_ = 0;
  DeviceInfo device_{};
  std::string name_;
  std::vector<std::string> counters_;
  std::unique_ptr<CaptureReader> reader_;
  CaptureRecord record_;
  std::span<const std::byte> bytes_;
  bool has_record_ = false, broken_ = false;
  uint32_t wishes_ = 0, deaths_ = 0;  // that have been taken
};

}  // namespace hostnic::cli
