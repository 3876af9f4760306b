// SPDX-License-Identifier: BSD-3-Clause
// Objects that come and go: what is destroyed too early, and what stays for ever.
#include <cerrno>

#include "verbs-shim/check/check.h"
#include "verbs-shim/check/memory.h"
#include "verbs-shim/check/places.h"
#include "verbs-shim/check/queue_pairs.h"
#include "verbs-shim/check/report.h"

namespace hostnic::check {

void note_object(ObjectKind kind, const void* object, const ibv_context* context,
                 std::initializer_list<const void*> uses) {
  const void* made_at = call_place();
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  Object& of = all.objects[object];
  of = {.kind = kind, .context = context, .made_at = made_at};
  for (const void* used : uses) {
    const auto found = used != nullptr ? all.objects.find(used) : all.objects.end();
    if (found == all.objects.end()) continue;
    ++found->second.users;
    of.uses.push_back(used);
  }
}

uint32_t events_of(const void* object) {
  const SpinGuard guard(shadow().lock);
  const auto found = shadow().objects.find(object);
  return found == shadow().objects.end() ? 0 : found->second.events;
}

namespace {

// One that uses it, and how many do.
struct User {
  uint32_t count = 0;
  ObjectKind kind = ObjectKind::kContext;
  const void* made_at = nullptr;
};

// Under the lock.
User user_of(const void* object) {
  const auto& objects = shadow().objects;
  const auto found = objects.find(object);
  if (found == objects.end() || found->second.users == 0) return {};
  User user{.count = found->second.users};
  for (const auto& [other, of] : objects)
    for (const void* used : of.uses)
      if (used == object) {
        user.kind = of.kind;
        user.made_at = of.made_at;
        return user;
      }
  return {};
}

// Takes it out of the shadow; null: it was not there.
Object* take_out(const void* object) {
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  const auto found = all.objects.find(object);
  if (found == all.objects.end()) return nullptr;
  auto* const taken = new Object(found->second);
  for (const void* used : taken->uses)
    if (const auto of = all.objects.find(used); of != all.objects.end() && of->second.users > 0)
      --of->second.users;
  all.objects.erase(found);
  return taken;
}

void put_back(const void* object, const Object& taken) {
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  for (const void* used : taken.uses)
    if (const auto of = all.objects.find(used); of != all.objects.end()) ++of->second.users;
  all.objects[object] = taken;
}

void look_for_users(const void* object, ObjectKind kind) {
  User user;
  {
    const SpinGuard guard(shadow().lock);
    user = user_of(object);
  }
  if (user.count == 0) return;
  report(kind == ObjectKind::kContext ? CheckKind::kClosedEarly : CheckKind::kInUse,
         {"created", user.made_at}, "the %s %s, and %u objects use it: one is a %s", name_of(kind),
         kind == ObjectKind::kContext ? "is closed" : "is destroyed", user.count,
         name_of(user.kind));
}

Going goes(const void* object, ObjectKind kind) {
  Going going{.object = object};
  look_for_users(object, kind);
  if (const uint32_t events = events_of(object); events > 0)
    going.record = report_for_now(CheckKind::kUnacknowledgedEvent, {},
                                  "destroying the %s waits for ibv_ack_async_event of %u events",
                                  name_of(kind), events);
  going.taken = take_out(object);
  return going;
}

}  // namespace

void note(ibv_context* context) { note_object(ObjectKind::kContext, context, context, {}); }

void note(ibv_pd* pd) {
  note_object(ObjectKind::kPd, pd, pd->context, {pd->context});
  const SpinGuard guard(shadow().lock);
  shadow().domains[pd] = {};
}

void note(ibv_pd* parent_domain, const ibv_pd* pd) {
  note_object(ObjectKind::kPd, parent_domain, parent_domain->context, {pd});
  const SpinGuard guard(shadow().lock);
  shadow().domains[parent_domain].of = plain_domain(pd);
}

void note(ibv_comp_channel* channel) {
  note_object(ObjectKind::kChannel, channel, channel->context, {channel->context});
}

void note(ibv_cq* cq) {
  note_object(ObjectKind::kCq, cq, cq->context, {cq->context, cq->channel});
  const SpinGuard guard(shadow().lock);
  Shadow& all = shadow();
  CqShadow* made = all.free_cqs.empty() ? new CqShadow : all.free_cqs.back();
  if (!all.free_cqs.empty()) all.free_cqs.pop_back();
  made->cq = cq;
  made->entries.store(cq->cqe);
  made->may_come.store(0);
  made->unacknowledged.store(0);
  made->only_qp.store(nullptr);
  made->qps.store(0);
  all.cqs[cq] = made;
}

void note(ibv_cq_ex* cq) { note(ibv_cq_ex_to_cq(cq)); }

void note(ibv_srq* srq) {
  note_object(ObjectKind::kSrq, srq, srq->context, {srq->pd});
  const SpinGuard guard(shadow().lock);
  Shadow& all = shadow();
  SrqShadow* made = all.free_srqs.empty() ? new SrqShadow : all.free_srqs.back();
  if (!all.free_srqs.empty()) all.free_srqs.pop_back();
  made->srq = srq;
  made->context = srq->context;
  made->pd = plain_domain(srq->pd);
  all.srqs[srq] = made;
}

void note(ibv_ah* ah) { note_object(ObjectKind::kAh, ah, ah->context, {ah->pd}); }

namespace {

void fill(Region& region, const ibv_mr* mr, const Memory& memory) {
  region.mr = mr;
  region.context = mr->context;
  region.pd = plain_domain(mr->pd);
  region.lkey = mr->lkey;
  region.base = (memory.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : memory.iova;
  region.length = memory.length;
  region.to_memory = reinterpret_cast<uint64_t>(memory.start) - region.base;
  region.has_memory = memory.start != nullptr;
  region.access = memory.access;
  region.gone_at = nullptr;
}

}  // namespace

namespace {

constexpr size_t kMostGoneRegions = 65536;

// Regions that are gone are remembered for their keys, but not for ever.
void forget_gone_regions(Shadow& all) {
  if (all.regions.size() < kMostGoneRegions + 2 * all.live_regions) return;
  std::erase_if(all.regions, [](const auto& entry) { return entry.second.gone_at != nullptr; });
}

}  // namespace

void note(ibv_mr* mr, const Memory& memory) {
  note_object(ObjectKind::kMr, mr, mr->context, {mr->pd});
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  Region region;
  fill(region, mr, memory);
  region.made_at = call_place();
  // A null region and one of all memory have no bounds.
  if (memory.length == 0 || memory.length == SIZE_MAX) {
    region.base = region.to_memory = 0;
    region.length = UINT64_MAX;
    region.has_memory = false;
  }
  all.regions[{mr->context, mr->lkey}] = region;
  ++all.live_regions;
  forget_gone_regions(all);
  all.age.fetch_add(1, std::memory_order_release);
}

void changed(ibv_mr* mr, int flags, const Memory& memory) {
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  for (auto& [key, region] : all.regions) {
    if (region.mr != mr || region.gone_at != nullptr) continue;
    Region of = region;
    if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) of.pd = plain_domain(mr->pd);
    if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) of.access = memory.access;
    if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
      of.base = memory.iova;
      of.length = memory.length;
      of.to_memory = 0;
    }
    of.lkey = mr->lkey;
    if (key.number != mr->lkey) region.gone_at = call_place();
    all.regions[{mr->context, mr->lkey}] = of;
    break;
  }
  all.age.fetch_add(1, std::memory_order_release);
}

void resized(ibv_cq* cq) {
  if (CqShadow* of = find_cq(cq)) of->entries.store(cq->cqe);
}

void initialized_forks() {
  const SpinGuard guard(shadow().lock);
  shadow().forks_are_safe = true;
}

Going destroys(const ibv_context* context) { return goes(context, ObjectKind::kContext); }
Going destroys(const ibv_comp_channel* channel) { return goes(channel, ObjectKind::kChannel); }
Going destroys(const ibv_ah* ah) { return goes(ah, ObjectKind::kAh); }

Going destroys(const ibv_pd* pd) {
  const Going going = goes(pd, ObjectKind::kPd);
  const SpinGuard guard(shadow().lock);
  shadow().domains.erase(pd);
  return going;
}

Going destroys(const ibv_srq* srq) {
  Going going = goes(srq, ObjectKind::kSrq);
  const SpinGuard guard(shadow().lock);
  const auto found = shadow().srqs.find(srq);
  if (found == shadow().srqs.end()) return going;
  going.srq = found->second;
  shadow().srqs.erase(found);
  return going;
}

Going destroys(const ibv_cq* cq) {
  Going going = goes(cq, ObjectKind::kCq);
  if (const CqShadow* of = find_cq(cq); of != nullptr && going.record == kNoRecord)
    if (const int64_t events = of->unacknowledged.load(); events > 0)
      going.record = report_for_now(CheckKind::kUnacknowledgedEvent, {},
                                    "destroying the completion queue waits for ibv_ack_cq_events "
                                    "of %ld events",
                                    static_cast<long>(events));
  const SpinGuard guard(shadow().lock);
  const auto found = shadow().cqs.find(cq);
  if (found == shadow().cqs.end()) return going;
  going.cq = found->second;
  shadow().cqs.erase(found);
  return going;
}

Going destroys(const ibv_qp* qp) {
  const Going going = goes(qp, ObjectKind::kQp);
  forget_qp(qp);
  return going;
}

Going destroys(const ibv_mr* mr) {
  Region region;
  const void* here = call_place();
  {
    const SpinGuard guard(shadow().lock);
    const auto found = shadow().regions.find({mr->context, mr->lkey});
    if (found != shadow().regions.end()) region = found->second;
  }
  const bool is_known = region.mr == mr && region.gone_at == nullptr;
  if (is_known) look_for_use(region);
  const Going going = goes(mr, ObjectKind::kMr);
  if (!is_known) return going;
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  all.regions[{mr->context, mr->lkey}].gone_at = here;
  if (all.live_regions > 0) --all.live_regions;
  all.age.fetch_add(1, std::memory_order_release);
  return going;
}

namespace {

// A call has failed, and its object is as it was. A queue pair is not followed any more.
void stays(const Going& going) {
  if (going.taken != nullptr) put_back(going.object, *going.taken);
  Shadow& all = shadow();
  const SpinGuard guard(all.lock);
  if (going.cq != nullptr) all.cqs[going.cq->cq] = going.cq;
  if (going.srq != nullptr) all.srqs[going.srq->srq] = going.srq;
  if (going.taken == nullptr || going.taken->kind != ObjectKind::kMr) return;
  const auto* mr = static_cast<const ibv_mr*>(going.object);
  const auto found = all.regions.find({mr->context, mr->lkey});
  if (found == all.regions.end() || found->second.mr != mr) return;
  found->second.gone_at = nullptr;
  ++all.live_regions;
  all.age.fetch_add(1, std::memory_order_release);
}

}  // namespace

void destroyed(const Going& going, bool is_gone) {
  const int saved_errno = errno;
  withdraw(going.record);
  if (!is_gone) {
    stays(going);
  } else if (going.srq != nullptr) {
    going.srq->receives.clear();
    const SpinGuard guard(shadow().lock);
    shadow().free_srqs.push_back(going.srq);
  } else if (going.cq != nullptr) {
    const SpinGuard guard(shadow().lock);
    shadow().free_cqs.push_back(going.cq);
  }
  delete going.taken;
  errno = saved_errno;
}

namespace {

// What the program itself has made, and not a library that keeps it on purpose.
[[gnu::destructor]] void look_for_leaks() {
  if (!is_on() || !is_strict()) return;
  std::vector<Object> left;
  {
    const SpinGuard guard(shadow().lock);
    for (const auto& [object, of] : shadow().objects) left.push_back(of);
  }
  for (const Object& of : left) {
    if (!is_in_executable(of.made_at)) continue;
    enters("exit", nullptr);
    report(CheckKind::kLeak, {"created", of.made_at}, "a %s is never destroyed", name_of(of.kind));
  }
}

}  // namespace

}  // namespace hostnic::check
