// SPDX-License-Identifier: BSD-3-Clause
// Any datagram is either a request that keeps its promises or an error of one printable line. The
// first byte says how many descriptors came along.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/control/control_request.h"

namespace {

using namespace hostnic;

void require(bool condition) {
  if (!condition) std::abort();
}

void require_printable(const std::string& text) {
  for (const char c : text) require(c >= ' ' && c <= '~');
}

void check(const RegisterMr& call, size_t fds) {
  require(call.regions.size() <= kMaxRegionsPerMr);
  // A memory region may be empty, and then nothing is behind it.
  if (call.fixed.length_bytes != 0 || !call.regions.empty())
    require(covers_exactly(call.regions, call.fixed.va, call.fixed.length_bytes));
  require(call.fixed.iova + call.fixed.length_bytes >= call.fixed.iova);
  for (const MemoryRegion& region : call.regions)
    require(!names_file(region.kind) || region.file_index < fds);
}

// What is left of a line lies inside it, and nothing means an error.
void check(const ParsedLine& parsed, std::string_view line) {
  require(parsed.command != nullptr || parsed.args.empty());
  require(parsed.error.empty() || parsed.command == nullptr);
  for (const std::string_view word : parsed.args)
    require(word.data() >= line.data() && word.data() + word.size() <= line.data() + line.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t fds = data[0] % (kMaxControlFds + 1);
  std::span<const uint8_t> rest(data + 1, size - 1);
  std::vector<std::byte> datagram(rest.size());
  if (!rest.empty()) std::memcpy(datagram.data(), rest.data(), rest.size());
  // Get past the header most of the time; the odd first byte keeps it raw.
  if (datagram.size() >= sizeof(ControlRequest) && data[0] < 128) {
    ControlRequest header;
    std::memcpy(&header, datagram.data(), sizeof(header));
    header.magic = kControlMagic;
    header.abi_version = kHostAbiVersion;
    header.kind = static_cast<ControlKind>(static_cast<uint32_t>(header.kind) % 14);
    header.payload_bytes = static_cast<uint32_t>(datagram.size() - sizeof(header));
    std::memcpy(datagram.data(), &header, sizeof(header));
  }
  const auto call = parse_control_request(datagram, fds);
  if (!call) {
    require(call.error().error > 0 && !call.error().message.empty());
    require_printable(call.error().message);
    require(std::strlen(error_reply(call.error()).message) > 0);
    return 0;
  }
  if (const auto* registration = std::get_if<RegisterMr>(&*call)) check(*registration, fds);
  if (const auto* change = std::get_if<MemoryChange>(&*call)) {
    require(change->length_bytes != 0 && change->va + change->length_bytes > change->va);
    require(change->kind == MemoryChangeKind::kMoved || change->moved_to == 0);
    require(change->moved_to + change->length_bytes >= change->moved_to);
  }
  if (const auto* named = std::get_if<NameHost>(&*call)) require(is_ipv6_host(named->address));
  if (const auto* netlink = std::get_if<RdmaNetlink>(&*call)) {
    require(!netlink->datagram.empty() && netlink->fixed.device_count <= kMaxDevices);
    require(netlink->fixed.first_index <= kMostRdmaIndex);
  }
  if (const auto* capture = std::get_if<CaptureRequest>(&*call)) {
    require(is_capture_size(capture->ring_bytes));
    require(capture->snap_bytes >= kMinSnapBytes && capture->snap_bytes <= kMaxSnapBytes);
  }
  if (const auto* open = std::get_if<OpenDevice>(&*call)) require_printable(open->program);
  if (const auto* text = std::get_if<TextCommand>(&*call)) {
    require_printable(text->text);
    check(parse_command_line(text->text), text->text);
  }
  return 0;
}
