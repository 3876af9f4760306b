// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/control/control_request.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <optional>

#include "protocol/hostif/version.h"
#include "protocol/nldev/answer.h"

namespace hostnic {
namespace {

using Result = Expected<ControlCall, ControlError>;

Unexpected<ControlError> invalid(std::string message) {
  return Unexpected(ControlError{EINVAL, std::move(message)});
}

template <size_t N>
std::string text_field(const char (&field)[N]) {
  return printable(std::string_view(field, strnlen(field, N)));
}

// Takes a T from the start of `bytes`, which need not be aligned.
template <typename T>
std::optional<T> take(std::span<const std::byte>& bytes) {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T value;
  memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return value;
}

Result parse_open(std::span<const std::byte> payload, size_t fd_count) {
  const auto request = take<OpenRequest>(payload);
  if (!request || !payload.empty()) return invalid("open: wrong length");
  const bool has_mirror = request->has_mirror != 0;
  const size_t most = has_mirror ? 3 : 2;
  if (fd_count != most && fd_count != most - 1)
    return invalid(fmt::format("open: {} descriptors came along, expected {}", fd_count, most));
  return ControlCall(OpenDevice{request->device_index, request->pid, has_mirror, fd_count == most,
                                text_field(request->program)});
}

Result parse_register(std::span<const std::byte> payload, size_t fd_count) {
  const auto fixed = take<RegisterMrRequest>(payload);
  if (!fixed) return invalid("register: wrong length");
  if (fixed->region_count > kMaxRegionsPerMr)
    return invalid(fmt::format("register: {} regions, up to {} are possible", fixed->region_count,
                               kMaxRegionsPerMr));
  if (payload.size() != fixed->region_count * sizeof(MemoryRegion))
    return invalid("register: length and region count disagree");
  RegisterMr call{*fixed, std::vector<MemoryRegion>(fixed->region_count)};
  std::ranges::copy(payload, std::as_writable_bytes(std::span(call.regions)).begin());
  const bool empty = fixed->length_bytes == 0 && call.regions.empty();
  if (!empty && !covers_exactly(call.regions, fixed->va, fixed->length_bytes))
    return invalid("register: the regions do not cover the memory exactly");
  uint64_t end = 0;
  if (__builtin_add_overflow(fixed->iova, fixed->length_bytes, &end))
    return invalid("register: iova + length wraps around");
  for (const MemoryRegion& region : call.regions) {
    if (region.kind > RegionKind::kMirrorLate) return invalid("register: unknown kind of region");
    if (names_file(region.kind) && region.file_index >= fd_count)
      return invalid("register: a region names a file that was not sent");
  }
  return ControlCall(std::move(call));
}

Result parse_change(std::span<const std::byte> payload) {
  const auto request = take<MemoryChange>(payload);
  if (!request || !payload.empty()) return invalid("memory change: wrong length");
  uint64_t end = 0;
  if (request->length_bytes == 0 ||
      __builtin_add_overflow(request->va, request->length_bytes, &end))
    return invalid("memory change: the range is empty or wraps around");
  if (request->kind > MemoryChangeKind::kOutside) return invalid("memory change: unknown kind");
  const bool moves = request->kind == MemoryChangeKind::kMoved;
  if (moves ? __builtin_add_overflow(request->moved_to, request->length_bytes, &end) ||
                  end > kMirrorBytes
            : request->moved_to != 0)
    return invalid("memory change: no place to move to");
  return ControlCall(*request);
}

Result parse_netlink(std::span<const std::byte> payload) {
  const auto request = take<RdmaNetlinkRequest>(payload);
  if (!request || payload.empty() || payload.size() > nldev::kMostRequestBytes)
    return invalid("netlink: wrong length");
  if (request->short_acks > 1 || request->wants_words > 1 ||
      request->first_index > kMostRdmaIndex || request->device_count > kMaxDevices)
    return invalid("netlink: no such option, or too many devices");
  return ControlCall(RdmaNetlink{*request, {payload.begin(), payload.end()}});
}

Result parse_payload(ControlKind kind, std::span<const std::byte> payload, size_t fd_count) {
  if (fd_count != 0 && kind != ControlKind::kOpen && kind != ControlKind::kRegisterMr)
    return invalid("descriptors came along with a request that takes none");
  switch (kind) {
    case ControlKind::kListDevices:
      if (!payload.empty()) return invalid("list: wrong length");
      return ControlCall(ListDevices{});
    case ControlKind::kOpen:
      return parse_open(payload, fd_count);
    case ControlKind::kRegisterMr:
      return parse_register(payload, fd_count);
    case ControlKind::kDeregisterMr: {
      const auto request = take<DeregisterMrRequest>(payload);
      if (!request || !payload.empty()) return invalid("deregister: wrong length");
      return ControlCall(DeregisterMr{request->lkey});
    }
    case ControlKind::kChangeMemory:
      return parse_change(payload);
    case ControlKind::kMemoryFilled: {
      const auto request = take<MemoryFilledRequest>(payload);
      if (!request || !payload.empty()) return invalid("filled: wrong length");
      return ControlCall(MemoryFilled{request->lkey});
    }
    case ControlKind::kNameHost: {
      const auto request = take<NameHostRequest>(payload);
      if (!request || !payload.empty()) return invalid("name host: wrong length");
      NameHost call;
      memcpy(call.address.data(), request->gid, call.address.size());
      if (!is_ipv6_host(call.address)) return invalid("name host: no IPv6 address of a host");
      return ControlCall(call);
    }
    case ControlKind::kOpenCm: {
      const auto request = take<OpenCmRequest>(payload);
      if (!request || !payload.empty()) return invalid("open rdma_cm: wrong length");
      return ControlCall(*request);
    }
    case ControlKind::kCapture: {
      const auto request = take<CaptureRequest>(payload);
      if (!request || !payload.empty()) return invalid("capture: wrong length");
      if (request->snap_bytes < kMinSnapBytes || request->snap_bytes > kMaxSnapBytes)
        return invalid(fmt::format("capture: between {} and {} bytes of a packet can be kept",
                                   kMinSnapBytes, kMaxSnapBytes));
      if (!is_capture_size(request->ring_bytes))
        return invalid(fmt::format("capture: a ring has a power of two of bytes, from {} to {}",
                                   kMinCaptureBytes, kMaxCaptureBytes));
      return ControlCall(*request);
    }
    case ControlKind::kExplain: {
      const auto request = take<ExplainRequest>(payload);
      if (!request || !payload.empty()) return invalid("explain: wrong length");
      if (request->question > kLastQuestion || request->sge_count > kMaxSge)
        return invalid("explain: no such question");
      return ControlCall(*request);
    }
    case ControlKind::kDumpCaptures: {
      const auto request = take<DumpCapturesRequest>(payload);
      if (!request || !payload.empty() || request->wish > 1)
        return invalid("dump: wrong length, or no such wish");
      return ControlCall(*request);
    }
    case ControlKind::kRdmaNetlink:
      return parse_netlink(payload);
    case ControlKind::kText:
      return ControlCall(TextCommand{printable(
          std::string_view(reinterpret_cast<const char*>(payload.data()), payload.size()))});
  }
  return invalid(fmt::format("unknown request {}", static_cast<uint32_t>(kind)));
}

}  // namespace

Expected<ControlCall, ControlError> parse_control_request(std::span<const std::byte> datagram,
                                                          size_t fd_count) {
  const auto header = take<ControlRequest>(datagram);
  if (!header) return invalid("request shorter than its header");
  if (header->magic != kControlMagic) return invalid("not a hostnic control request");
  // The version is checked before anything that another version may have laid out differently.
  if (header->abi_version != kHostAbiVersion)
    return Unexpected(ControlError{
        EPROTONOSUPPORT,
        fmt::format("hostnicd {} speaks ABI {}, the program's libhostnic-verbs {} ABI {}: use both "
                    "from one build",
                    HOSTNIC_VERSION, kHostAbiVersion, text_field(header->build),
                    header->abi_version)});
  if (header->payload_bytes != datagram.size()) return invalid("request of a wrong length");
  return parse_payload(header->kind, datagram, fd_count);
}

std::string printable(std::string_view text) {
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

ControlReply error_reply(const ControlError& error) {
  ControlReply reply;
  reply.error = error.error;
  const size_t bytes = std::min(error.message.size(), sizeof(reply.message) - 1);
  memcpy(reply.message, error.message.data(), bytes);
  return reply;
}

}  // namespace hostnic
