// SPDX-License-Identifier: BSD-3-Clause
// What peers and the program's own requests do by the keys of registrations.
//
// A key leads to the pages that were there at its registration. As long as the program has such a
// page somewhere, or has given it away by a call of the C library's, what a peer does to it has one
// right result ("strict"). What the program has emptied since, or unmapped or replaced by a bare
// system call, is an adapter's alone: an access may then fail; or succeed on
// the old page; or on the page that is there now, where the mapping is still there, or has moved
// to, or at that place of the file. Nothing else ever changes.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "tests/apps/twin/executor.h"

namespace hostnic::twin {
namespace {

constexpr size_t kMostMessage = kPeerHalf;
constexpr uint64_t kStreamPages = 16;
constexpr uint64_t kSharedAtomics = 500;  // of each side

}  // namespace

// In the place of the page that was registered: of a file the page of the same place, and of
// private memory that of the same mapping, wherever the program has moved it since; or what was
// there when it went, if the program had emptied the page.
Executor::Present Executor::present(const Segment& part) {
  Present result;
  if (part.object != nullptr) {
    if (part.object_page >= part.object->pages) return result;
    result.frame = part.object->frame(part.object_page);
    Page* page = model.find(result.frame->at / kPage);
    if (result.frame->attached > 0 && page != nullptr && page->can_read() &&
        page->frame() == result.frame)
      result.at = result.frame->at + part.offset;
    return result;
  }
  result.number = model.find_slot(part.slot);
  Page* page = model.find(result.number);
  if (page == nullptr) {
    for (FrameRef heir = part.frame->heir; heir != nullptr; heir = heir->heir) result.frame = heir;
    return result;
  }
  result.page = page;
  result.frame = page->frame();
  if (page->can_read()) result.at = result.number * kPage + part.offset;
  return result;
}

std::optional<Executor::Target> Executor::pick_target(int access, size_t least, size_t most,
                                                      bool aligned, bool strict_only) {
  std::vector<Region*> can;
  for (const auto& each : regions_)
    if ((each->access & access) == access && each->length >= least + 8) can.push_back(each.get());
  if (can.empty()) return std::nullopt;
  Target target;
  target.region = can[random(0) % can.size()];
  const uint64_t how = random(1) % 8;
  const size_t room = std::min(target.region->length - 7, most);
  size_t length = least;
  if (room > least) {
    const size_t span = how < 5   ? std::min<size_t>(room, 6000)
                        : how < 7 ? std::min<size_t>(room, 100'000)
                                  : room;
    length = std::max(least, 1 + (random(1) >> 8) % span);
  }
  target.offset = random(2) % (target.region->length - length + 1);
  if (aligned) {
    target.offset = ((target.address() + 7) & ~7ull) - target.region->address;
    if (target.offset + length > target.region->length) return std::nullopt;
  }
  target.length = length;
  target.parts = target.region->part(target.offset, length);
  target.strict = !target.region->cut_off;
  std::set<const Frame*> frames;
  for (const Segment& each : target.parts) {
    if (each.dead || each.frame->busy) return std::nullopt;
    // A file's page that is there twice: what it will contain is up to the order.
    if (each.mapping != 0 && !frames.insert(each.frame.get()).second) return std::nullopt;
    if (each.frame->is_led_to()) continue;
    target.strict = false;
    const Present now = present(each);
    if (now.frame != nullptr && (now.frame->busy || (now.page != nullptr && now.at == 0)))
      return std::nullopt;
  }
  if (strict_only && !target.strict) return std::nullopt;
  say(" {:#x}+{:#x} of {:#x}{}", target.address(), target.length, target.region->address,
      target.strict ? "" : " (gone in part)");
  return target;
}

bool Executor::succeeded(const Target& target, int status, const char* what) {
  if (status == IBV_WC_SUCCESS) return true;
  if (status == -1) fail(fmt::format("{}: no completion", what));
  const auto known = static_cast<ibv_wc_status>(status);
  const bool about_memory = known == IBV_WC_REM_ACCESS_ERR || known == IBV_WC_LOC_PROT_ERR ||
                            known == IBV_WC_REM_OP_ERR || known == IBV_WC_WR_FLUSH_ERR;
  if (target.strict || !about_memory) fail(fmt::format("{}: {}", what, ibv_wc_status_str(known)));
  say(": {}", ibv_wc_status_str(known));
  return false;
}

void Executor::reconnect() { peer_->connect(*ends_); }

// Bytes have come in: all of them with success; without, any of them.
void Executor::arrived(const Target& target, const uint8_t* bytes, bool success) {
  size_t done = 0;
  for (const Segment& each : target.parts) {
    const uint8_t* put = bytes + done;
    done += each.length;
    const bool attached = each.frame->attached > 0;
    const Present now = each.frame->is_led_to() ? Present{} : present(each);
    FrameRef seen = attached ? each.frame : now.frame;
    if (success && each.frame->is_led_to()) {
      each.frame->set(each.offset, put, each.length);
    } else if (seen != nullptr) {
      // Where it can be looked at each byte is what it was, or what has come.
      const uint64_t at = attached ? each.frame->at + each.offset : now.at;
      if (at == 0) {
        seen->unknown = true;
        each.frame->unknown = true;
        continue;
      }
      if (attached && each.mapping != 0) {
        const Page* page = model.find(at / kPage);
        if (page == nullptr || !page->can_read() || page->frame() != each.frame) {
          each.frame->unknown = true;
          continue;
        }
      }
      std::vector<uint8_t> bytes_now(each.length), old(each.length);
      std::memcpy(bytes_now.data(), as_pointer(at), each.length);
      seen->get(old.data(), each.offset, each.length);
      for (size_t i = 0; i < each.length; ++i)
        if (bytes_now[i] != old[i] && bytes_now[i] != put[i] && !seen->unknown)
          differs(at, bytes_now.data(), old.data(), each.length);
      if (bytes_now != old) {
        if (now.page != nullptr) {
          model.make_own(*now.page, now.number);
          seen = now.page->own;
        }
        seen->set(each.offset, bytes_now.data(), each.length);
      }
    }
    if (!attached && !(success && each.frame->kept)) {
      if (success && !each.frame->unknown && seen == nullptr)
        each.frame->set(each.offset, put, each.length);
      else
        each.frame->unknown = true;
    }
  }
  for (const Segment& each : target.parts) {
    check_range(each.address, each.length);
    if (each.frame->attached == 0) continue;
    if (each.mapping == 0) {
      // A block's page lies across two of the machine's.
      uint8_t expected[kPage];
      if (each.frame->unknown) continue;
      each.frame->get(expected, each.offset, each.length);
      const uint64_t at = each.frame->at + each.offset;
      if (std::memcmp(as_pointer(at), expected, each.length) != 0)
        differs(at, as_bytes(at), expected, each.length);
    } else {
      check_range(each.frame->at, 1);
    }
  }
}

void Executor::compare_read(const Target& target, const uint8_t* got) {
  size_t done = 0;
  for (const Segment& each : target.parts) {
    const uint8_t* bytes = got + done;
    done += each.length;
    if (each.frame->unknown) continue;
    std::vector<uint8_t> wanted(each.length);
    each.frame->get(wanted.data(), each.offset, each.length);
    if (std::memcmp(bytes, wanted.data(), each.length) == 0) continue;
    if (!each.frame->is_led_to()) {
      if (const Present now = present(each); now.frame != nullptr) {
        std::vector<uint8_t> others(each.length);
        now.frame->get(others.data(), each.offset, each.length);
        bool right = true;
        for (size_t i = 0; i < each.length; ++i)
          right &= bytes[i] == wanted[i] || bytes[i] == others[i];
        if (right || now.frame->unknown) continue;
      }
    }
    differs(each.address, bytes, wanted.data(), each.length);
  }
}

void Executor::peer_write() {
  if (ends_ == nullptr || stream_) return skip();
  const auto target = pick_target(IBV_ACCESS_REMOTE_WRITE, 1, kMostMessage, false, false);
  if (!target) return skip();
  Command command;
  command.order = Order::kWrite;
  command.address = target->address();
  command.rkey = target->region->mr->rkey;
  command.length = target->length;
  command.seed = random(4) | 1;
  const Reply reply = timed([&] { return peer_->ask(command); });
  const bool good = succeeded(*target, reply.status, "the peer's WRITE");
  arrived(*target, content(target->length, command.seed).data(), good);
  if (!good) reconnect();
}

void Executor::peer_read() {
  if (ends_ == nullptr || stream_) return skip();
  const auto target = pick_target(IBV_ACCESS_REMOTE_READ, 1, kMostMessage, false, false);
  if (!target) return skip();
  Command command;
  command.order = Order::kRead;
  command.address = target->address();
  command.rkey = target->region->mr->rkey;
  command.length = target->length;
  const Reply reply = timed([&] { return peer_->ask(command); });
  if (!succeeded(*target, reply.status, "the peer's READ")) return reconnect();
  compare_read(*target, peer_->bytes(true));
}

void Executor::peer_atomic() {
  if (ends_ == nullptr || stream_) return skip();
  const auto target = pick_target(IBV_ACCESS_REMOTE_ATOMIC, 8, 8, true, true);
  if (!target || target->parts.size() != 1) return skip();
  const Segment& part = target->parts[0];
  if (part.frame->unknown) return skip();
  uint64_t before = 0;
  uint8_t bytes[8];
  part.frame->get(bytes, part.offset, 8);
  std::memcpy(&before, bytes, 8);
  Command command;
  command.order = random(5) % 2 == 0 ? Order::kFetchAdd : Order::kCompareSwap;
  command.address = target->address();
  command.rkey = target->region->mr->rkey;
  command.length = 8;
  const bool is_add = command.order == Order::kFetchAdd;
  command.a = is_add ? random(4) : before + (random(4) % 2);
  command.b = random(4) ^ 0x1234;
  const Reply reply = timed([&] { return peer_->ask(command); });
  if (!succeeded(*target, reply.status, "the peer's atomic")) return reconnect();
  if (reply.value != before)
    fail(fmt::format("an atomic found {:#x}, there was {:#x}", reply.value, before));
  const uint64_t after = is_add ? before + command.a : command.a == before ? command.b : before;
  std::memcpy(bytes, &after, 8);
  arrived(*target, bytes, true);
}

void Executor::peer_send(bool datagram) {
  if (ends_ == nullptr || stream_) return skip();
  const size_t header = datagram ? kGrhBytes : 0;
  const auto target =
      pick_target(IBV_ACCESS_LOCAL_WRITE, header + 1,
                  datagram ? header + kDatagramBytes : kMostMessage / 4, false, datagram);
  if (!target) return skip();
  ibv_qp* qp = datagram ? ends_->datagram : ends_->reliable;
  const int posted = timed([&] {
    return ends_->post_receive(target->address(), static_cast<uint32_t>(target->length),
                               target->region->mr->lkey, qp);
  });
  if (posted != 0) fail(fmt::format("ibv_post_recv: {}", strerrorname_np(posted)));
  Command command;
  command.order = datagram ? Order::kSendDatagram : Order::kSend;
  command.length = target->length - header;
  command.seed = random(4) | 1;
  const Reply reply = timed([&] { return peer_->ask(command); });
  ibv_wc completion{};
  const bool came = ends_->next(completion, datagram ? 5 : kPatienceS);
  if (!came) fail(fmt::format("a receive has no completion, the peer's send {}", reply.status));
  if (completion.wr_id != 1000) fail(fmt::format("completion of {}", completion.wr_id));
  const bool good = succeeded(*target, completion.status, "a receive") &
                    succeeded(*target, reply.status, "the peer's SEND");
  if (good && completion.byte_len != target->length)
    fail(fmt::format("received {} of {} bytes", completion.byte_len, target->length));
  std::vector<uint8_t> bytes(header);
  if (datagram) {
    // The header is the wire's business; it is where the program looks.
    const Segment& part = target->parts[0];
    bool hidden = false;
    for (size_t i = 0; i < header; ++i) {
      const Segment& of = i < part.length ? part : target->parts[1];
      const size_t in = i < part.length ? part.offset + i : i - part.length;
      const Page* page = model.find(of.frame->at / kPage);
      const bool seen =
          of.frame->attached > 0 &&
          (of.mapping == 0 || (page != nullptr && page->can_read() && page->frame() == of.frame));
      if (seen)
        bytes[i] = *as_bytes(of.frame->at + in);
      else
        hidden = true;
    }
    // Nobody can look at it before it is readable again.
    if (hidden)
      for (const Segment& each : target->parts) each.frame->unknown = true;
  }
  const std::vector<uint8_t> data = content(command.length, command.seed);
  bytes.insert(bytes.end(), data.begin(), data.end());
  arrived(*target, bytes.data(), good);
  if (!good) reconnect();
}

void Executor::send_out() {
  if (ends_ == nullptr || stream_) return skip();
  const auto target = pick_target(0, 1, kMostMessage / 4, false, false);
  if (!target) return skip();
  Command command;
  command.order = Order::kPostReceive;
  command.length = target->length;
  if (peer_->ask(command).status != 0) fail("the peer's ibv_post_recv");
  ibv_sge sge{target->address(), static_cast<uint32_t>(target->length), target->region->mr->lkey};
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  const int posted = timed([&] { return ends_->post(wr, ends_->reliable); });
  if (posted != 0) fail(fmt::format("ibv_post_send: {}", strerrorname_np(posted)));
  ibv_wc completion{};
  if (!ends_->next(completion)) fail("a SEND has no completion");
  if (!succeeded(*target, completion.status, "SEND")) return reconnect();
  command.order = Order::kReceived;
  const Reply reply = peer_->ask(command);
  if (reply.status != 0 || reply.value != target->length)
    fail(fmt::format("the peer's receive: status {}, {} bytes", reply.status, reply.value));
  compare_read(*target, peer_->bytes(true));
}

void Executor::write_out() {
  if (ends_ == nullptr || stream_) return skip();
  const auto target = pick_target(0, 1, kMostMessage, false, false);
  if (!target) return skip();
  ibv_sge sge{target->address(), static_cast<uint32_t>(target->length), target->region->mr->lkey};
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = peer_->remote_address();
  wr.wr.rdma.rkey = peer_->remote_key();
  const int posted = timed([&] { return ends_->post(wr, ends_->reliable); });
  if (posted != 0) fail(fmt::format("ibv_post_send: {}", strerrorname_np(posted)));
  ibv_wc completion{};
  if (!ends_->next(completion)) fail("a WRITE has no completion");
  if (!succeeded(*target, completion.status, "WRITE")) return reconnect();
  compare_read(*target, peer_->bytes(true));
}

void Executor::read_in() {
  if (ends_ == nullptr || stream_) return skip();
  const auto target = pick_target(IBV_ACCESS_LOCAL_WRITE, 1, kMostMessage, false, false);
  if (!target) return skip();
  const std::vector<uint8_t> bytes = content(target->length, random(4) | 1);
  std::memcpy(peer_->bytes(true), bytes.data(), bytes.size());
  ibv_sge sge{target->address(), static_cast<uint32_t>(target->length), target->region->mr->lkey};
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = peer_->remote_address();
  wr.wr.rdma.rkey = peer_->remote_key();
  const int posted = timed([&] { return ends_->post(wr, ends_->reliable); });
  if (posted != 0) fail(fmt::format("ibv_post_send: {}", strerrorname_np(posted)));
  ibv_wc completion{};
  if (!ends_->next(completion)) fail("a READ has no completion");
  const bool good = succeeded(*target, completion.status, "READ");
  arrived(*target, bytes.data(), good);
  if (!good) reconnect();
}

// The peer writes to some pages, and reads what it wrote, while the program does other things.
void Executor::stream() {
  if (ends_ == nullptr || stream_) return skip();
  std::vector<Region*> can;
  for (const auto& each : regions_)
    if ((each->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)) ==
            (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) &&
        each->length >= 2 * kPage)
      can.push_back(each.get());
  if (can.empty()) return skip();
  Region& region = *can[random(0) % can.size()];
  const uint64_t begin = (region.address + kPage - 1) / kPage;
  const uint64_t end = (region.address + region.length) / kPage;
  const uint64_t pages = std::min(1 + random(1) % kStreamPages, end - begin);
  const uint64_t first = begin + random(2) % (end - begin - pages + 1);
  Stream stream;
  stream.seed = random(4) | 1;
  stream.pages = pages;
  stream.region = &region;
  stream.parts = region.part(first * kPage - region.address, pages * kPage);
  for (const Segment& each : stream.parts)
    // Pages of a block would be several frames each.
    if (each.dead || each.mapping == 0 || each.frame->attached == 0 || each.length != kPage)
      return skip();
  for (size_t i = 0; i < stream.parts.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (stream.parts[i].frame == stream.parts[j].frame) return skip();  // one page, twice
  say(" {:#x}, {} pages of {:#x}", first * kPage, pages, region.address);
  for (const Segment& each : stream.parts) each.frame->busy = true;
  Command command;
  command.order = Order::kStream;
  command.address = first * kPage;
  command.rkey = region.mr->rkey;
  command.seed = stream.seed;
  command.a = pages;
  peer_->tell(command);
  stream_ = std::move(stream);
}

void Executor::end_stream() {
  if (!stream_) return skip();
  Command command;
  command.order = Order::kStreamEnd;
  Reply reply, empty;
  timed([&] {
    peer_->tell(command);
    if (!peer_->answer(reply) || !peer_->answer(empty)) fail("the peer's stream does not end");
    return 0;
  });
  const Stream stream = std::move(*stream_);
  stream_.reset();
  say(" {} WRITEs, the longest {:.1f} ms", reply.value, reply.longest_s * 1e3);
  const auto status = static_cast<ibv_wc_status>(reply.status);
  const bool about_memory = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR;
  bool gone = stream.region == nullptr || stream.region->cut_off;
  for (const Segment& each : stream.parts) gone |= !each.frame->is_led_to();
  if (about_memory && gone) {
    say(": {}", ibv_wc_status_str(status));
    // Some page has got a WRITE more than another.
    if (stream.region != nullptr)
      for (const Segment& each : stream.parts) {
        each.frame->busy = false;
        each.frame->unknown = true;
      }
    return reconnect();
  }
  if (reply.status != 0)
    fail(fmt::format("the peer's stream after {} WRITEs: {}", reply.value,
                     reply.status < 0
                         ? "no completion"
                         : ibv_wc_status_str(static_cast<ibv_wc_status>(reply.status))));
  if (reply.a != 0)
    fail(
        fmt::format("the peer's READ of page {} of its stream found something else than its last "
                    "WRITE there, after {} WRITEs",
                    reply.a - 1, reply.value));
  note_time(reply.longest_s);
  if (stream.region == nullptr) return;
  for (uint64_t page = 0; page < stream.pages; ++page) {
    const Segment& part = stream.parts[page];
    part.frame->busy = false;
    part.frame->set_page(stream_seed(stream.seed, stream.pages, page, reply.value), 0);
    check_range(part.frame->at, 1);
  }
}

// Nothing comes any more: what is there now stays.
void Executor::stream_deregistered() {
  stream_->region = nullptr;
  for (const Segment& each : stream_->parts) {
    each.frame->busy = false;
    const Page* page = model.find(each.frame->at / kPage);
    if (each.frame->attached == 0 || page == nullptr || !page->can_read() ||
        page->frame() != each.frame) {
      each.frame->unknown = true;
      continue;
    }
    each.frame->set(0, as_bytes(each.frame->at), kPage);
  }
}

// The peer registers a file's page that is registered here as well: both sides' fetch-and-adds go
// to the same word, by the other's registration, at the same time.
void Executor::share_atomics() {
  if (ends_ == nullptr || stream_) return skip();
  std::vector<std::pair<Region*, const Segment*>> can;
  for (const auto& each : regions_)
    for (const Segment& part : each->segments)
      if (!each->cut_off && (each->access & IBV_ACCESS_REMOTE_ATOMIC) != 0 &&
          part.object != nullptr && part.object->fd >= 0 &&
          (part.object->seals & F_SEAL_FUTURE_WRITE) == 0 &&
          part.object_page < part.object->pages && part.length >= 16 && part.frame->attached > 0 &&
          !part.frame->unknown)
        can.emplace_back(each.get(), &part);
  if (can.empty()) {
    if (!register_file_page()) return skip();
    can.emplace_back(regions_.back().get(), &regions_.back()->segments[0]);
  }
  const auto& [region, whole] = can[random(0) % can.size()];
  Target target;
  target.region = region;
  target.length = 8;
  target.offset =
      ((whole->address + 7) & ~7ull) + random(1) % (whole->length / 8 - 1) * 8 - region->address;
  target.parts = region->part(target.offset, target.length);
  const Segment& part = target.parts[0];
  say(" {:#x} of {:#x}", target.address(), region->address);
  if (results_mr_ == nullptr) {
    results_.resize(64);
    results_mr_ = ibv_reg_mr(ends_->pd, results_.data(), results_.size(), IBV_ACCESS_LOCAL_WRITE);
    if (results_mr_ == nullptr && settings_.may_refuse && errno == EOPNOTSUPP)
      return say(": refused");
    expect(results_mr_ != nullptr, 0, "ibv_reg_mr");
  }
  uint64_t before = 0;
  uint8_t bytes[8];
  part.frame->get(bytes, part.offset, 8);
  std::memcpy(&before, bytes, 8);
  Command command;
  command.order = Order::kShareAtomics;
  command.address = target.address();
  command.rkey = target.region->mr->rkey;
  command.length = 8;
  command.a = part.object_page;
  command.b = kSharedAtomics;
  peer_->tell(command, part.object->fd);
  Reply reply;
  if (!peer_->answer(reply)) fail("the peer does not answer");
  ibv_sge sge{as_address(results_.data()), 8, results_mr_->lkey};
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.atomic.remote_addr = reply.address + part.offset;
  wr.wr.atomic.rkey = reply.rkey;
  wr.wr.atomic.compare_add = 1;
  for (uint64_t i = 0; i < kSharedAtomics; ++i) {
    if (const int posted = ends_->post(wr, ends_->reliable); posted != 0)
      fail(fmt::format("ibv_post_send: {}", strerrorname_np(posted)));
    ibv_wc completion{};
    if (!ends_->next(completion)) fail("an atomic has no completion");
    if (completion.status != IBV_WC_SUCCESS)
      fail(fmt::format("an atomic: {}", ibv_wc_status_str(completion.status)));
  }
  if (!peer_->answer(reply)) fail("the peer's atomics don't end");
  if (reply.status != 0) fail(fmt::format("the peer's atomics: {}", reply.status));
  const uint64_t after = before + 2 * kSharedAtomics;
  uint64_t found = 0;
  if (pread(part.object->fd, &found, 8,
            static_cast<off_t>(part.object_page * kPage + part.offset)) != 8)
    fail("pread");
  if (found != after)
    fail(fmt::format("{} of {} fetch-and-adds are lost", after - found, 2 * kSharedAtomics));
  std::memcpy(bytes, &after, 8);
  arrived(target, bytes, true);
}

}  // namespace hostnic::twin
