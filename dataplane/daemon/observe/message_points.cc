// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/message_points.h"

#include <errno.h>
#include <rte_trace.h>
#include <rte_uuid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "dataplane/daemon/observe/message_point_list.h"

namespace hostnic {
namespace {

constexpr uint32_t kCtfMagic = 0xC1FC1FC1;

__rte_trace_header* header_of(void* memory) { return static_cast<__rte_trace_header*>(memory); }

// The trace's number, which is in the metadata, and in each stream.
bool read_uuid(rte_uuid_t& uuid) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const file = open_memstream(&text, &bytes);
  if (file == nullptr) return false;
  const bool dumped = rte_trace_metadata_dump(file) == 0;
  fclose(file);
  const std::string metadata(text == nullptr ? "" : text);
  free(text);
  constexpr std::string_view kMark = "uuid = \"";
  const size_t at = metadata.find(kMark);
  if (!dumped || at == std::string::npos) return false;
  const size_t begin = at + kMark.size();
  return rte_uuid_parse(metadata.substr(begin, metadata.find('"', begin) - begin).c_str(), uuid) ==
         0;
}

void emit(const MessageMoment& moment) {
  const MessageEvent* const event = moment.event;
  const uint64_t at = moment.ticks;
  const uint32_t nic = moment.nic, qpn = moment.qpn, until = moment.until;
  switch (moment.kind) {
    case MomentKind::kPosted:
      return hostnic_trace_posted(
          at, nic, qpn, moment.client, event->sequence, event->number, event->wr_id,
          event->first_psn, event->psns, event->first_answer, event->answers, event->length_bytes,
          static_cast<uint8_t>(event->op), static_cast<uint8_t>(moment.type), event->signalled);
    case MomentKind::kPolled:
      return hostnic_trace_polled(at, nic, qpn, moment.client, event->sequence, event->number,
                                  event->wr_id, event->status);
    case MomentKind::kSent:
      return hostnic_trace_sent(at, nic, qpn, until);
    case MomentKind::kArrived:
      return hostnic_trace_arrived(at, nic, qpn, until);
    case MomentKind::kPlaced:
      return hostnic_trace_placed(at, nic, qpn, until, 0);
    case MomentKind::kPlacedAlone:
      return hostnic_trace_placed(at, nic, qpn, until, 1);
    case MomentKind::kAcknowledged:
      return hostnic_trace_acknowledged(at, nic, qpn, until);
    case MomentKind::kAnswered:
      return hostnic_trace_answered(at, nic, qpn, until);
    case MomentKind::kReported:
      return hostnic_trace_reported(at, nic, qpn, until, moment.answered);
  }
}

}  // namespace

void enable_message_points(bool on) {
  for (rte_trace_point_t* const point :
       {&__hostnic_trace_posted, &__hostnic_trace_polled, &__hostnic_trace_sent,
        &__hostnic_trace_arrived, &__hostnic_trace_placed, &__hostnic_trace_acknowledged,
        &__hostnic_trace_answered, &__hostnic_trace_reported}) {
    if (on)
      rte_trace_point_enable(point);
    else
      rte_trace_point_disable(point);
  }
  // The mode is taken by points that are enabled. What is full keeps what it has: an event that is
  // missing in the middle would be one of some message that seems slow.
  if (on) rte_trace_mode_set(RTE_TRACE_MODE_DISCARD);
}

int MessagePoints::make_memory(uint32_t bytes, uint32_t lcore) {
  mapped_bytes_ = sizeof(__rte_trace_header) + bytes;
  void* const memory = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return errno;
  memory_ = memory;
  __rte_trace_header& header = *header_of(memory_);
  header.offset = 0;
  header.len = bytes;
  header.stream_header.magic = kCtfMagic;
  header.stream_header.lcore_id = lcore;
  snprintf(header.stream_header.thread_name, sizeof header.stream_header.thread_name, "lcore %u",
           lcore);
  return read_uuid(header.stream_header.uuid) ? 0 : ENOTSUP;
}

MessagePoints::~MessagePoints() {
  if (memory_ != nullptr) munmap(memory_, mapped_bytes_);
}

void MessagePoints::begin() {
  before_ = RTE_PER_LCORE(trace_mem);
  RTE_PER_LCORE(trace_mem) = memory_;
}

void MessagePoints::end() { RTE_PER_LCORE(trace_mem) = before_; }

void MessagePoints::take(const MessageMoment& moment) {
  if (is_full_) {
    ++missed_;
    return;
  }
  const uint32_t before = header_of(memory_)->offset;
  emit(moment);
  // What found no room has changed nothing.
  is_full_ = header_of(memory_)->offset == before;
  ++(is_full_ ? missed_ : recorded_);
}

std::span<const std::byte> MessagePoints::stream() const {
  const __rte_trace_header& header = *header_of(memory_);
  return {reinterpret_cast<const std::byte*>(&header.stream_header),
          sizeof header.stream_header + header.offset};
}

}  // namespace hostnic
