// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/check/memory.h"

#include <stdio.h>

#include <algorithm>

#include "verbs-shim/check/digest.h"
#include "verbs-shim/check/places.h"
#include "verbs-shim/check/report.h"

namespace hostnic::check {
namespace {

constexpr unsigned kPeerWrites =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
// So many requests of a queue pair are compared, with all their bytes; then one in so many is.
constexpr uint64_t kFirstRequests = 64;
constexpr uint64_t kOneIn = 8;

// Pieces of memory that devices have written, the newest ones.
struct Inbound {
  SpinLock lock;
  std::atomic<uint64_t> count{0};
  static constexpr uint64_t kKept = 4096;
  ibv_sge piece[kKept];
};
Inbound inbound;

bool overlaps(const ibv_sge& one, const ibv_sge& other) {
  return one.addr < other.addr + other.length && other.addr < one.addr + one.length;
}

bool overlap(const Pieces& pieces, const ibv_sge& sge) {
  for (uint32_t i = 0; i < pieces.count; ++i)
    if (overlaps(pieces.sge[i], sge)) return true;
  return false;
}

bool overlap(const Pieces& pieces, const Pieces& others) {
  for (uint32_t i = 0; i < others.count; ++i)
    if (overlap(pieces, others.sge[i])) return true;
  return false;
}

bool is_read_or_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// Whether a device may have written there since the request was posted: as an answer that came, or
// one that may have come.
bool may_be_written_by_device(const SendEntry& entry) {
  {
    const SpinGuard guard(inbound.lock);
    const uint64_t count = inbound.count.load(std::memory_order_relaxed);
    if (count - entry.inbound > Inbound::kKept) return true;
    for (uint64_t i = entry.inbound; i < count; ++i)
      if (overlap(entry.pieces, inbound.piece[i % Inbound::kKept])) return true;
  }
  for (QpShadow* qp : all_qps()) {
    const SpinGuard guard(qp->lock);
    for (size_t i = 0; i < qp->receives.size(); ++i)
      if (overlap(entry.pieces, qp->receives[i].pieces)) return true;
    for (size_t i = 0; i < qp->sends.size(); ++i)
      if (is_read_or_atomic(qp->sends[i].opcode) && overlap(entry.pieces, qp->sends[i].pieces))
        return true;
  }
  std::vector<SrqShadow*> srqs;
  {
    const SpinGuard guard(shadow().lock);
    for (const auto& [key, srq] : shadow().srqs) srqs.push_back(srq);
  }
  for (SrqShadow* srq : srqs) {
    const SpinGuard guard(srq->lock);
    for (size_t i = 0; i < srq->receives.size(); ++i)
      if (!srq->receives[i].is_taken && overlap(entry.pieces, srq->receives[i].pieces)) return true;
  }
  return false;
}

// The region of a key; nothing: none was ever seen.
std::optional<Region> find_region(QpShadow* qp, const ibv_context* context, uint32_t lkey) {
  Shadow& all = shadow();
  const uint64_t age = all.age.load(std::memory_order_acquire);
  if (qp != nullptr && qp->last_region_age == age && qp->last_region.lkey == lkey)
    return qp->last_region;
  const SpinGuard guard(all.lock);
  const auto found = all.regions.find({context, lkey});
  if (found == all.regions.end()) return std::nullopt;
  if (qp != nullptr) {
    qp->last_region = found->second;
    qp->last_region_age = age;
  }
  return found->second;
}

bool is_unseen_key_possible() {
  static const bool possible = has_unseen_keys();
  return possible;
}

// Reports what is wrong with an SGE; returns whether nothing is.
bool is_good(const Use& use, const ibv_sge& sge, const std::optional<Region>& region) {
  const unsigned long start = sge.addr;
  if (!region) {
    if (!is_unseen_key_possible())
      report(CheckKind::kUnknownKey, {}, "%s: lkey 0x%x is of no region of this process", use.what,
             sge.lkey);
    return false;
  }
  if (region->gone_at != nullptr) {
    report(CheckKind::kStaleKey, {"deregistered", region->gone_at},
           "%s: lkey 0x%x is of a region that was deregistered", use.what, sge.lkey);
    return false;
  }
  const OtherPlace registered{"registered", region->made_at};
  if (use.pd != nullptr && region->pd != use.pd) {
    report(CheckKind::kOtherDomain, registered,
           "%s: lkey 0x%x is of a region of another protection domain", use.what, sge.lkey);
    return false;
  }
  if (start < region->base || start - region->base > region->length ||
      sge.length > region->length - (start - region->base)) {
    report(CheckKind::kOutsideRegion, registered,
           "%s: %u bytes at 0x%lx are not within their region, %lu bytes at 0x%lx", use.what,
           sge.length, start, static_cast<unsigned long>(region->length),
           static_cast<unsigned long>(region->base));
    return false;
  }
  if (use.writes && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    report(CheckKind::kNoLocalWrite, registered,
           "%s: %u bytes at 0x%lx are in a region without IBV_ACCESS_LOCAL_WRITE", use.what,
           sge.length, start);
    return false;
  }
  return true;
}

bool is_compared(const Region& region) {
  return region.has_memory &&
         (is_strict() || (region.access & kPeerWrites) == 0 || !peers_write(region.pd));
}

std::optional<uint64_t> digest_of(QpShadow& qp, const SendEntry& entry, bool for_compare) {
  std::optional<uint64_t> sum = entry.number;
  const auto thoroughness = entry.is_full ? Thoroughness::kFull : Thoroughness::kSampled;
  for (uint32_t i = 0; i < entry.pieces.count && sum; ++i) {
    const ibv_sge& sge = entry.pieces.sge[i];
    const auto region = find_region(&qp, qp.context, sge.lkey);
    if (!region || region->gone_at != nullptr || !region->has_memory) return std::nullopt;
    if (for_compare && !is_compared(*region)) return std::nullopt;
    sum = digest(*sum, sge.addr + region->to_memory, sge.length, thoroughness, entry.number);
  }
  return sum;
}

// Another queue pair of which a request that was posted later has completed already: its completion
// is easily taken for this one's, too. 0: there is none.
uint32_t qpn_of_later_completion(const QpShadow& qp, const SendEntry& entry) {
  for (QpShadow* other : all_qps()) {
    if (other == &qp) continue;
    const SpinGuard guard(other->lock);
    if (other->last_completed > entry.order) return other->qpn;
  }
  return 0;
}

// Whether a datagram may have been answered before its completion was polled: it is never sent
// again, so the device is done with its memory.
bool may_be_answered(const QpShadow& qp, const SendEntry& entry) {
  return qp.type == IBV_QPT_UD && !is_strict() &&
         qp.heard.load(std::memory_order_relaxed) != entry.heard;
}

}  // namespace

void look_at_sges(const Use& use, const ibv_sge* sges, uint32_t count, Pieces& pieces) {
  for (uint32_t i = 0; sges != nullptr && i < count; ++i) {
    if (sges[i].length == 0) continue;
    const auto region = find_region(use.qp, use.context, sges[i].lkey);
    if (is_good(use, sges[i], region) && pieces.count < kKeptSges)
      pieces.sge[pieces.count++] = sges[i];
  }
}

void take_digest(QpShadow& qp, SendEntry& entry) {
  if (entry.is_inline || is_read_or_atomic(entry.opcode) || entry.pieces.count == 0) return;
  // That an unsignalled one is done is also known by what its peer answers.
  if (!entry.is_signalled && !is_strict()) return;
  entry.is_full = is_full() || entry.number < kFirstRequests;
  if (!entry.is_full && entry.number % kOneIn != 0) return;
  entry.inbound = inbound_count();
  entry.heard = qp.heard.load(std::memory_order_relaxed);
  const auto sum = digest_of(qp, entry, /*for_compare=*/true);
  entry.is_compared = entry.is_readable = sum.has_value();
  entry.digest = sum.value_or(0);
}

bool has_changed(QpShadow& qp, const SendEntry& entry) {
  if (!entry.is_compared) return false;
  const auto sum = digest_of(qp, entry, /*for_compare=*/false);
  return !sum || *sum != entry.digest;
}

void report_change(QpShadow& qp, const SendEntry& entry) {
  if (may_be_written_by_device(entry) || may_be_answered(qp, entry)) return;
  const ibv_sge& sge = entry.pieces.sge[0];
  const unsigned long start = sge.addr, wr_id = entry.wr_id, bytes = entry.bytes;
  const auto region = find_region(&qp, qp.context, sge.lkey);
  if (!region || region->gone_at != nullptr) return;  // that is told when it goes
  if (!digest_of(qp, entry, /*for_compare=*/false)) {
    report(CheckKind::kUnmappedBuffer, {"posted", entry.posted_at},
           "%s of %lu bytes at 0x%lx (wr_id 0x%lx, QP 0x%x): unmapped before its completion",
           name_of(entry.opcode), bytes, start, wr_id, qp.qpn);
    return;
  }
  char elsewhere[96] = "";
  if (const uint32_t other = qpn_of_later_completion(qp, entry); other != 0)
    snprintf(elsewhere, sizeof(elsewhere),
             "; QP 0x%x has completed a later one meanwhile, which says nothing of this", other);
  report(CheckKind::kChangedBuffer, {"posted", entry.posted_at},
         "%s of %lu bytes at 0x%lx (wr_id 0x%lx, QP 0x%x): changed between post and completion%s",
         name_of(entry.opcode), bytes, start, wr_id, qp.qpn, elsewhere);
}

void look_for_unmapped(QpShadow& qp, const SendEntry& entry) {
  if (!entry.is_readable || entry.pieces.count == 0) return;
  if (!digest_of(qp, entry, /*for_compare=*/false)) report_change(qp, entry);
}

void note_inbound(const Pieces& pieces) {
  if (pieces.count == 0) return;
  const SpinGuard guard(inbound.lock);
  uint64_t count = inbound.count.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < pieces.count; ++i)
    inbound.piece[count++ % Inbound::kKept] = pieces.sge[i];
  inbound.count.store(count, std::memory_order_release);
}

uint64_t inbound_count() { return inbound.count.load(std::memory_order_acquire); }

namespace {

bool uses(const Pieces& pieces, uint32_t lkey) {
  for (uint32_t i = 0; i < pieces.count; ++i)
    if (pieces.sge[i].lkey == lkey) return true;
  return false;
}

struct Found {
  const void* posted_at = nullptr;
  const char* what = "";
};

template <typename Entry>
const Entry* first_use(Ring<Entry>& ring, uint32_t lkey) {
  for (size_t i = 0; i < ring.size(); ++i)
    if (uses(ring[i].pieces, lkey)) return &ring[i];
  return nullptr;
}

// An unsignalled request may have ended without the program's having to be told.
bool is_surely_outstanding(const SendEntry& entry) { return entry.is_signalled || is_strict(); }

Found use_of(QpShadow& qp, uint32_t lkey) {
  const int state = qp.state.load();
  if (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD) return {};
  {
    const SpinGuard guard(qp.lock);
    if (qp.has_failed || qp.has_lost_track) return {};
    if (const SendEntry* entry = first_use(qp.sends, lkey);
        entry != nullptr && is_surely_outstanding(*entry))
      return {entry->posted_at, name_of(entry->opcode)};
    if (const RecvEntry* entry = first_use(qp.receives, lkey); entry != nullptr)
      return {entry->posted_at, "receive"};
  }
  if (qp.srq == nullptr) return {};
  const SpinGuard guard(qp.srq->lock);
  for (size_t i = 0; i < qp.srq->receives.size(); ++i) {
    const RecvEntry& entry = qp.srq->receives[i];
    if (!entry.is_taken && uses(entry.pieces, lkey)) return {entry.posted_at, "receive"};
  }
  return {};
}

}  // namespace

void look_for_use(const Region& region) {
  for (QpShadow* qp : all_qps()) {
    if (qp->context != region.context) continue;
    const Found found = use_of(*qp, region.lkey);
    if (found.posted_at == nullptr) continue;
    report(CheckKind::kRegionInUse, {"posted", found.posted_at},
           "the region with lkey 0x%x goes, and a %s posted to QP 0x%x uses it", region.lkey,
           found.what, qp->qpn);
    return;
  }
}

void begin_memory_in_child() { inbound.lock.reset(); }

}  // namespace hostnic::check
