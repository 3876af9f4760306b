// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/traffic.h"

#include <algorithm>
#include <cstring>

namespace hostnic::sim {
namespace {

bool consumes_receive(SendOp op) {
  return op == SendOp::kSend || op == SendOp::kSendImm || op == SendOp::kWriteImm;
}
bool is_write(SendOp op) { return op == SendOp::kWrite || op == SendOp::kWriteImm; }
bool is_atomic(SendOp op) { return op == SendOp::kCompareSwap || op == SendOp::kFetchAdd; }

const char* name_of(SendOp op) {
  static constexpr const char* kNames[] = {"?",        "WRITE", "WRITE_IMM", "SEND",
                                           "SEND_IMM", "READ",  "CMP_SWAP",  "FETCH_ADD"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace

Traffic::Traffic(World& world, Endpoint& requester, Endpoint& responder,
                 const TrafficSettings& settings, uint64_t seed)
    : world_(world),
      requester_(requester),
      responder_(responder),
      settings_(settings),
      random_(seed),
      receive_bytes_(std::min(settings.max_bytes, 32u * 1024)),
      target_bytes_(settings.max_bytes + 64 * 1024),
      source_bytes_(2 * uint64_t{settings.max_bytes}),
      landing_bytes_(4 * uint64_t{settings.max_bytes} + 64 * 1024),
      source_(source_bytes_, 0, random_.below(200)),
      landing_(landing_bytes_, kUntouched, random_.below(200)),
      target_(target_bytes_, kUntouched, random_.below(200)),
      counters_(kCounters * 8, 0, random_.below(25) * 8),
      receives_(uint64_t{kReceives} * receive_bytes_, kUntouched, random_.below(200)),
      wanted_(settings.requests) {
  for (uint64_t i = 0; i < source_bytes_; i += 8) {
    const uint64_t word = random_.next();
    std::memcpy(source_.data() + i, &word, 8);
  }
  source_sum_ = source_sum();
  Host& near = *requester.host;
  Host& far = *responder.host;
  source_key_ = near.add_mr(source_, 0, settings.reach);
  landing_key_ = near.add_mr(landing_, kAccessLocalWrite, settings.reach);
  // Two keys for the same bytes: order is a matter of memory, not of keys.
  target_keys_[0] = far.add_mr(target_, kAllAccess, settings.reach);
  target_keys_[1] = far.add_mr(target_, kAllAccess, settings.reach);
  counters_key_ = far.add_mr(counters_, kAllAccess, settings.reach);
  receives_key_ = far.add_mr(receives_, kAccessLocalWrite, settings.reach);
  target_reference_.assign(target_.data(), target_.data() + target_.size());
  landing_reference_.assign(landing_.data(), landing_.data() + landing_.size());
  receives_reference_.assign(receives_.data(), receives_.data() + receives_.size());
  counters_reference_.assign(kCounters, 0);
  requests_.reserve(settings.requests);
  receives_allowed_ = settings.late_receives ? 0 : UINT32_MAX;
  next_receive_ns_ = settings.late_receives ? world.now() : UINT64_MAX;
  next_post_ns_ = world.now();
}

void Traffic::fail(const std::string& what) {
  world_.fail(fmt::format("QP {:#x} -> {:#x}: {}", requester_.qpn(), responder_.qpn(), what));
}

TimeNs Traffic::next_ns() const {
  const bool all_posted = requests_.size() == wanted_;
  return std::min(all_posted ? UINT64_MAX : next_post_ns_,
                  finished() ? UINT64_MAX : next_receive_ns_);
}

bool Traffic::turn(TimeNs now_ns) {
  bool did = false;
  const bool near_runs = now_ns >= requester_.host->stopped_until_ns;
  const bool far_runs = now_ns >= responder_.host->stopped_until_ns;
  if (far_runs) did = post_receives(now_ns) || did;
  if (near_runs && now_ns >= next_post_ns_) did = post_batch(now_ns) || did;
  if (far_runs) did = take_receive_completions() || did;
  if (near_runs) did = take_completions() || did;
  if (++turns_ % 8 == 0) check_windows();
  return did;
}

void Traffic::stop() {
  wanted_ = std::min(wanted_, static_cast<uint32_t>(requests_.size()) + 1);
  receives_allowed_ = UINT32_MAX;
  if (next_receive_ns_ != UINT64_MAX) next_receive_ns_ = world_.now();
}

uint64_t Traffic::unfinished_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = completed_; i < requests_.size(); ++i) bytes += requests_[i].length_bytes;
  return bytes;
}

void Traffic::check_windows() {
  const driver::QpGauges g = requester_.host->driver().gauges(requester_.qp);
  const uint32_t window = requester_.host->nic().settings().window;
  if (g.requests_in_flight <= g.request_window && g.responses_in_flight <= g.response_window &&
      g.request_window <= window && g.response_window <= window) {
    return;
  }
  fail(fmt::format("{} requests and {} responses in flight, in windows of {} and {} PSNs",
                   g.requests_in_flight, g.responses_in_flight, g.request_window,
                   g.response_window));
}

uint64_t Traffic::source_sum() const {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < source_bytes_; i += 8) {
    uint64_t word;
    std::memcpy(&word, source_.data() + i, 8);
    sum = (sum ^ word) * 0x100000001b3;
  }
  return sum;
}

// ---- regions

uint32_t Traffic::near_key(Request& r, const Memory& memory, uint32_t access,
                           uint32_t lasting_key) {
  if (!settings_.short_lived_regions) return lasting_key;
  return r.near_keys.emplace_back(requester_.host->add_mr(memory, access, settings_.reach));
}

uint32_t Traffic::far_key(Request& r, const Memory& memory, uint32_t lasting_key) {
  if (!settings_.short_lived_regions) return lasting_key;
  return r.far_keys.emplace_back(responder_.host->add_mr(memory, kAllAccess, settings_.reach));
}

void Traffic::deregister(Request& r) {
  for (const uint32_t key : r.near_keys) requester_.host->remove_mr(key);
  for (const uint32_t key : r.far_keys) responder_.host->remove_mr(key);
  r.near_keys.clear();
  r.far_keys.clear();
}

// The program is done with what arrived there, and uses the memory, or what lies at its address
// next, for something else: whatever comes late must not change it.
void Traffic::reuse(Host& host, uint8_t* memory, uint64_t length_bytes, uint8_t fill) {
  if (settings_.memory_comes_back && length_bytes != 0)
    host.revoke(reinterpret_cast<uint64_t>(memory), length_bytes);
  std::memset(memory, fill, length_bytes);
}

// ---- posting

bool Traffic::post_batch(TimeNs now_ns) {
  const uint64_t batch = random_.between(1, 12);
  bool did = false;
  for (uint64_t i = 0; i < batch && requests_.size() < wanted_; ++i) {
    if (!post_one()) break;
    did = true;
  }
  // Without a free slot the next completion makes room; a look every few microseconds is enough.
  next_post_ns_ = now_ns + kMicrosecond + random_.below(uint64_t{settings_.pause_us} * 1000 + 1);
  return did;
}

uint32_t Traffic::random_length() {
  const uint32_t mtu = world_.settings().mtu_bytes;
  const uint64_t kind = random_.below(100);
  uint64_t length;
  if (kind < 4) {
    length = 0;
  } else if (kind < 30) {
    length = random_.between(1, 64);
  } else if (kind < 55) {
    length = random_.between(1, mtu);
  } else if (kind < 65) {
    length = mtu * random_.between(1, 4);
  } else if (kind < 85) {
    length = random_.between(1, 6 * mtu);
  } else if (kind < 97) {
    length = random_.between(1, 64 * 1024);
  } else {
    length = random_.between(1, 256 * 1024);
  }
  return static_cast<uint32_t>(std::min<uint64_t>(length, settings_.max_bytes));
}

std::vector<Sge> Traffic::split(uint64_t address, uint32_t length_bytes, uint32_t key) {
  std::vector<Sge> sges;
  const uint64_t parts = random_.percent(60) ? 1 : random_.between(1, 4);
  for (uint64_t i = 0; i < parts; ++i) {
    const auto part = static_cast<uint32_t>(
        i + 1 == parts ? length_bytes : random_.below(uint64_t{length_bytes} + 1));
    sges.push_back({address, part, key});
    address += part;
    length_bytes -= part;
  }
  return sges;
}

void Traffic::choose_data(Request& r, driver::SendRequest& request, std::vector<Sge>& sges) {
  r.length_bytes = random_length();
  request.inline_data =
      r.length_bytes <= requester_.settings.caps.max_inline_bytes && random_.percent(40);
  const bool is_send = r.op == SendOp::kSend || r.op == SendOp::kSendImm;
  if (is_send) r.length_bytes = std::min(r.length_bytes, receive_bytes_);
  uint64_t from = random_.below(source_bytes_ - r.length_bytes);
  sges = split(source_.address(from), r.length_bytes,
               request.inline_data ? 0 : near_key(r, source_, 0, source_key_));
  r.expected.assign(source_.data() + from, source_.data() + from + r.length_bytes);
  if (r.op == SendOp::kSendImm || r.op == SendOp::kWriteImm)
    request.imm_data = r.imm_data = static_cast<uint32_t>(random_.next());
  request.solicited = r.solicited = random_.percent(20);
  if (!is_write(r.op)) return;
  // Half of the WRITEs go where others went just before, to overlap in time.
  const uint64_t room = target_bytes_ - r.length_bytes + 1;
  r.remote_offset = random_.percent(50) ? random_.below(std::min<uint64_t>(room, 16 * 1024))
                                        : random_.below(room);
  std::copy(r.expected.begin(), r.expected.end(),
            target_reference_.begin() + static_cast<ptrdiff_t>(r.remote_offset));
  request.remote_va = target_.address(r.remote_offset);
  request.rkey = r.length_bytes == 0 ? 0 : far_key(r, target_, target_keys_[random_.below(2)]);
}

uint64_t Traffic::take_landing(Request& r, uint32_t length_bytes) {
  if (landing_head_ + length_bytes + 64 > landing_bytes_) landing_head_ = 0;
  const uint64_t offset = landing_head_;
  landing_head_ += length_bytes + random_.below(64);
  r.landing_offset = offset;
  r.landing_span = length_bytes;
  landing_outstanding_ += length_bytes;
  return landing_.address(offset);
}

void Traffic::choose_read(Request& r, driver::SendRequest& request, std::vector<Sge>& sges) {
  r.length_bytes = random_length();
  const uint64_t room = target_bytes_ - r.length_bytes + 1;
  r.remote_offset = random_.percent(50) ? random_.below(std::min<uint64_t>(room, 16 * 1024))
                                        : random_.below(room);
  const auto first = target_reference_.begin() + static_cast<ptrdiff_t>(r.remote_offset);
  r.expected.assign(first, first + r.length_bytes);
  sges = split(take_landing(r, r.length_bytes), r.length_bytes,
               near_key(r, landing_, kAccessLocalWrite, landing_key_));
  request.remote_va = target_.address(r.remote_offset);
  request.rkey = far_key(r, target_, target_keys_[random_.below(2)]);
}

void Traffic::choose_atomic(Request& r, driver::SendRequest& request, std::vector<Sge>& sges) {
  const uint64_t index = random_.below(kCounters);
  uint64_t& value = counters_reference_[index];
  r.length_bytes = 8;
  r.remote_offset = index * 8;
  r.atomic_result = value;
  sges = {{take_landing(r, 8), 8, near_key(r, landing_, kAccessLocalWrite, landing_key_)}};
  request.remote_va = counters_.address(r.remote_offset);
  request.rkey = far_key(r, counters_, counters_key_);
  if (r.op == SendOp::kFetchAdd) {
    request.compare_add = random_.next();
    value += request.compare_add;
  } else {
    request.compare_add = random_.percent(70) ? value : random_.next();
    request.swap = random_.next();
    if (request.compare_add == value) value = request.swap;
  }
}

bool Traffic::post_one() {
  if (requester_.host->driver().free_send_slots(requester_.qp) == 0) return false;
  if (landing_outstanding_ > landing_bytes_ / 4) return false;
  static constexpr SendOp kOps[] = {SendOp::kWrite,    SendOp::kWrite,      SendOp::kWrite,
                                    SendOp::kWriteImm, SendOp::kSend,       SendOp::kSend,
                                    SendOp::kSendImm,  SendOp::kRead,       SendOp::kRead,
                                    SendOp::kFetchAdd, SendOp::kCompareSwap};
  Request r;
  driver::SendRequest request;
  std::vector<Sge> sges;
  // MRC has the first four. It ends a connection whose peer has no receive posted.
  const bool writes_only = world_.settings().transport == Transport::kMrc;
  r.op = request.op = kOps[random_.below(writes_only ? 4 : std::size(kOps))];
  if (writes_only && r.op == SendOp::kWriteImm && sent_messages_ >= receives_posted_)
    r.op = request.op = SendOp::kWrite;
  if (r.op == SendOp::kRead) {
    choose_read(r, request, sges);
  } else if (is_atomic(r.op)) {
    choose_atomic(r, request, sges);
    ++atomics_posted_;
  } else {
    choose_data(r, request, sges);
  }
  const auto number = static_cast<uint32_t>(requests_.size());
  // At least every 16th is signalled, or the queue would never have free slots again, nor the
  // landing memory.
  r.signalled = random_.percent(settings_.signalled_percent) || ++unsignalled_run_ >= 16 ||
                number + 1 == wanted_ || landing_outstanding_ > landing_bytes_ / 8;
  if (r.signalled) unsignalled_run_ = 0;
  r.fence = random_.percent(settings_.fence_percent);
  r.posted_ns = world_.now();
  request.wr_id = number;
  request.signalled = r.signalled;
  request.fence = r.fence;
  request.sges = sges;
  if (consumes_receive(r.op)) {
    r.recv_number = sent_messages_++;
    message_requests_.push_back(number);
  }
  requests_.push_back(std::move(r));
  const int error = requester_.post_send(request);
  if (error != 0) fail(fmt::format("post_send of request {} answers {}", number, error));
  return error == 0;
}

bool Traffic::post_receives(TimeNs now_ns) {
  if (settings_.late_receives && now_ns >= next_receive_ns_) {
    if (receives_allowed_ != UINT32_MAX)
      receives_allowed_ += static_cast<uint32_t>(random_.between(1, 6));
    next_receive_ns_ = now_ns + random_.below(300 * kMicrosecond);
  }
  bool did = false;
  while (receives_posted_ - receives_done_ < kReceives && receives_posted_ < receives_allowed_ &&
         !finished()) {
    const uint64_t offset = uint64_t{receives_posted_ % kReceives} * receive_bytes_;
    uint32_t key = receives_key_;
    if (settings_.short_lived_regions)
      key = receive_keys_.emplace_back(
          responder_.host->add_mr(receives_, kAccessLocalWrite, settings_.reach));
    const auto sges = split(receives_.address(offset), receive_bytes_, key);
    const int error = responder_.post_recv({.wr_id = receives_posted_, .sges = sges});
    if (error != 0) {
      fail(fmt::format("post_recv answers {}", error));
      return did;
    }
    ++receives_posted_;
    did = true;
  }
  return did;
}

// ---- completions

bool Traffic::take_completions() {
  bool did = false;
  for (const driver::Completion& c : requester_.poll(*requester_.send_cq)) {
    did = true;
    if (c.status != driver::WcStatus::kSuccess) {
      fail(fmt::format("request {} completes with status {} (vendor {})", c.wr_id,
                       static_cast<uint32_t>(c.status), static_cast<uint32_t>(c.vendor)));
      return did;
    }
    if (c.wr_id < completed_ || c.wr_id >= requests_.size() || !requests_[c.wr_id].signalled) {
      fail(fmt::format("completion of request {}, {} expected next", c.wr_id, completed_));
      return did;
    }
    for (; completed_ <= c.wr_id; ++completed_) {
      if (completed_ != c.wr_id && requests_[completed_].signalled)
        fail(fmt::format("no completion of request {}, but of {}", completed_, c.wr_id));
      check_completed(completed_);
    }
    const Request& r = requests_[c.wr_id];
    longest_ns_ = std::max(longest_ns_, world_.now() - r.posted_ns);
    if ((r.op == SendOp::kRead || is_atomic(r.op)) && c.byte_len != r.length_bytes)
      fail(fmt::format("request {}: byte_len {} instead of {}", c.wr_id, c.byte_len,
                       r.length_bytes));
  }
  return did;
}

// Bytes equal what the request wrote or read, or, where they don't, what a later WRITE has put
// there already.
void Traffic::check_bytes(const char* what, uint32_t number, const uint8_t* actual,
                          uint32_t newer_end) {
  const Request& r = requests_[number];
  if (r.length_bytes == 0 || std::memcmp(actual, r.expected.data(), r.length_bytes) == 0) return;
  for (uint32_t i = 0; i < r.length_bytes; ++i) {
    if (actual[i] == r.expected[i]) continue;
    const uint64_t at = r.remote_offset + i;
    bool newer = false;
    for (uint32_t j = number + 1; j < newer_end && !newer; ++j) {
      const Request& later = requests_[j];
      newer = is_write(later.op) && at >= later.remote_offset &&
              at - later.remote_offset < later.length_bytes &&
              later.expected[at - later.remote_offset] == actual[i];
    }
    if (newer) continue;
    fail(fmt::format("{}: {} {} of {} bytes at offset {}: byte {} is {:#04x}, not {:#04x}", what,
                     name_of(r.op), number, r.length_bytes, r.remote_offset, i, actual[i],
                     r.expected[i]));
    return;
  }
}

void Traffic::check_completed(uint32_t number) {
  Request& r = requests_[number];
  const auto posted = static_cast<uint32_t>(requests_.size());
  if (is_write(r.op)) {
    check_bytes("completed", number, target_.data() + r.remote_offset, posted);
  } else if (r.op == SendOp::kSend || r.op == SendOp::kSendImm) {
    // Consumed already, or in its receive buffer.
    const uint8_t* buffer = receives_.data() + uint64_t{r.recv_number % kReceives} * receive_bytes_;
    if (r.recv_number >= receives_done_ && r.length_bytes != 0 &&
        std::memcmp(buffer, r.expected.data(), r.length_bytes) != 0) {
      fail(fmt::format("SEND {} has completed but is not in its receive buffer", number));
    }
  } else {
    check_read(number);
  }
  deregister(r);
}

void Traffic::check_read(uint32_t number) {
  Request& r = requests_[number];
  uint8_t* landed = landing_.data() + r.landing_offset;
  if (is_atomic(r.op)) {
    uint64_t result;
    std::memcpy(&result, landed, 8);
    if (result != r.atomic_result)
      fail(fmt::format("{} {} returns {:#x}, not {:#x}", name_of(r.op), number, result,
                       r.atomic_result));
  } else {
    // What was posted behind it can't have been seen, fence or not.
    check_bytes("read", number, landed, number + 1);
  }
  reuse(*requester_.host, landed, r.length_bytes, static_cast<uint8_t>(number));
  std::copy(landed, landed + r.length_bytes,
            landing_reference_.begin() + static_cast<ptrdiff_t>(r.landing_offset));
  landing_outstanding_ -= r.landing_span;
}

bool Traffic::take_receive_completions() {
  bool did = false;
  for (const driver::Completion& c : responder_.poll(*responder_.recv_cq)) {
    did = true;
    if (world_.failed()) return did;
    check_receive(c);
  }
  return did;
}

void Traffic::check_receive(const driver::Completion& c) {
  if (c.status != driver::WcStatus::kSuccess || c.wr_id != receives_done_ ||
      receives_done_ >= message_requests_.size()) {
    fail(fmt::format("receive {} completes with status {}, {} expected next", c.wr_id,
                     static_cast<uint32_t>(c.status), receives_done_));
    return;
  }
  const uint32_t number = message_requests_[receives_done_];
  const Request& r = requests_[number];
  const bool has_imm = r.op != SendOp::kSend;
  const auto opcode =
      r.op == SendOp::kWriteImm ? driver::WcOpcode::kRecvRdmaWithImm : driver::WcOpcode::kRecv;
  if (c.byte_len != r.length_bytes || c.opcode != opcode || c.qpn != responder_.qpn() ||
      c.src_qpn != requester_.qpn() || c.imm_data != (has_imm ? r.imm_data : 0) ||
      c.flags != (has_imm ? uint32_t{driver::kWcWithImm} : 0)) {
    fail(fmt::format("receive {} of {} {}: byte_len {} opcode {} imm {:#x} flags {}", c.wr_id,
                     name_of(r.op), number, c.byte_len, static_cast<uint32_t>(c.opcode), c.imm_data,
                     c.flags));
  }
  // All WRITEs before a SEND are visible when its receive completes.
  for (; visible_checked_ <= number; ++visible_checked_) {
    if (is_write(requests_[visible_checked_].op))
      check_bytes("visible", visible_checked_,
                  target_.data() + requests_[visible_checked_].remote_offset,
                  static_cast<uint32_t>(requests_.size()));
  }
  const uint64_t offset = uint64_t{receives_done_ % kReceives} * receive_bytes_;
  uint8_t* buffer = receives_.data() + offset;
  const uint32_t filled = r.op == SendOp::kWriteImm ? 0 : r.length_bytes;
  if (filled != 0 && std::memcmp(buffer, r.expected.data(), filled) != 0)
    fail(fmt::format("receive {} of {} {}: wrong bytes", c.wr_id, name_of(r.op), number));
  reuse(*responder_.host, buffer, filled, kUntouched);
  if (settings_.short_lived_regions) {
    responder_.host->remove_mr(receive_keys_.front());
    receive_keys_.pop_front();
  }
  if (buffer[receive_bytes_ - 1] != kUntouched ||
      std::memcmp(buffer, buffer + 1, receive_bytes_ - 1) != 0) {
    fail(fmt::format("receive {}: bytes behind the message have changed", c.wr_id));
  }
  ++receives_done_;
}

// ---- the end

void Traffic::check_memory() {
  const auto compare = [&](const char* what, const Memory& memory, const void* reference,
                           size_t bytes) {
    if (std::memcmp(memory.data(), reference, bytes) == 0) return;
    const auto* expected = static_cast<const uint8_t*>(reference);
    const uint8_t* const begin = memory.data();
    const uint8_t* const end = begin + bytes;
    if (const auto* at = std::mismatch(begin, end, expected).first; at != end)
      fail(fmt::format("{} differs from the reference at byte {}", what, at - begin));
  };
  compare("target memory", target_, target_reference_.data(), target_reference_.size());
  compare("landing memory", landing_, landing_reference_.data(), landing_reference_.size());
  compare("counters", counters_, counters_reference_.data(), kCounters * 8);
  compare("receive buffers", receives_, receives_reference_.data(), receives_reference_.size());
  if (source_sum() != source_sum_) fail("source memory has changed");
  for (const Memory* memory : {&source_, &landing_, &target_, &counters_, &receives_})
    if (!memory->surroundings_intact()) fail("bytes outside all memory regions have changed");
  if (receives_done_ != sent_messages_)
    fail(fmt::format("{} of {} receives completed", receives_done_, sent_messages_));
}

std::string Traffic::progress() const {
  return fmt::format(
      "QP {:#x} -> {:#x}: {} posted, {} completed, receives {} posted, {} of {} done",
      requester_.qpn(), responder_.qpn(), requests_.size(), completed_, receives_posted_,
      receives_done_, sent_messages_);
}

}  // namespace hostnic::sim
