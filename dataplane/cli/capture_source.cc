// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/capture_source.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "dataplane/cli/control_client.h"

namespace hostnic::cli {
namespace {

TimeNs now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<TimeNs>(now.tv_sec) * 1'000'000'000 + static_cast<TimeNs>(now.tv_nsec);
}

// The names in a reply, each with a 0 behind it.
std::vector<std::string> names_in(std::span<const std::byte> bytes) {
  std::vector<std::string> names;
  std::string name;
  for (const std::byte each : bytes) {
    if (each != std::byte{0}) {
      name.push_back(static_cast<char>(each));
    } else {
      names.push_back(std::exchange(name, {}));
    }
  }
  return names;
}

}  // namespace

Expected<std::unique_ptr<CaptureSource>, std::string> CaptureSource::open(
    const std::string& path, uint32_t device_index, const CaptureRequest& wanted) {
  CaptureRequest request = wanted;
  request.device_index = device_index;
  auto opened = open_capture(path, request);
  if (!opened) return Unexpected(opened.error());
  std::unique_ptr<CaptureSource> source(new CaptureSource);
  source->socket_ = std::move(opened->socket);
  const ReceivedReply& reply = opened->reply;
  CaptureReply fixed;
  if (reply.payload.size() < sizeof(fixed) || reply.fds.size() != 2)
    return Unexpected(std::string("hostnicd's answer is not one to a capture"));
  memcpy(&fixed, reply.payload.data(), sizeof(fixed));
  source->device_ = fixed.device;
  source->device_.name[sizeof(fixed.device.name) - 1] = 0;
  source->device_.port[sizeof(fixed.device.port) - 1] = 0;
  source->counters_ = names_in(std::span(reply.payload).subspan(sizeof(fixed)));
  source->ring_bytes_ = request.ring_bytes;
  source->ring_ = mmap(nullptr, kCapturePageBytes + source->ring_bytes_, PROT_READ, MAP_SHARED,
                       reply.fds[0].get(), 0);
  source->index_ =
      mmap(nullptr, kCapturePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, reply.fds[1].get(), 0);
  if (source->ring_ == MAP_FAILED || source->index_ == MAP_FAILED)
    return Unexpected(fmt::format("the ring of the capture: mmap: {}", strerror(errno)));
  if (source->header().magic != kCaptureMagic || source->header().version != kCaptureVersion)
    return Unexpected(std::string("hostnicd's ring is laid out otherwise: use both of one build"));
  source->reader_ = std::make_unique<CaptureReader>(
      source->header(), *static_cast<CaptureIndex*>(source->index_),
      static_cast<const std::byte*>(source->ring_) + kCapturePageBytes, source->ring_bytes_);
  source->started_ns = now_ns();
  return source;
}

void CaptureSource::announce_keeping(const std::string& file) {
  auto& index = *static_cast<CaptureIndex*>(index_);
  memcpy(index.file, file.data(), std::min(file.size(), sizeof(index.file) - 1));
  index.keeps.store(1, std::memory_order_release);
}

bool CaptureSource::take_wish() {
  const uint32_t before = wishes_;
  wishes_ = header().dumps_wanted.load(std::memory_order_acquire);
  return wishes_ != before;
}

void CaptureSource::fulfil(bool well) {
  auto& index = *static_cast<CaptureIndex*>(index_);
  index.dump_error.store(well ? 0 : 1, std::memory_order_relaxed);
  index.dumps_done.store(wishes_, std::memory_order_release);
}

uint32_t CaptureSource::take_death() {
  const uint64_t death = header().last_death.load(std::memory_order_acquire);
  const uint32_t before = std::exchange(deaths_, death_count(death));
  return deaths_ != before ? death_pid(death) : 0;
}

}  // namespace hostnic::cli
