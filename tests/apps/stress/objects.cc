// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/stress/objects.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/apps/stress/common.h"

namespace hostnic::stress {
namespace {

// Objects that several threads hold go where the last one lets go, and must go without complaint.
void destroyed(int error, const char* what) {
  if (error != 0) die(fmt::format("{} of what nothing refers to: {}", what, strerror(error)));
}

}  // namespace

// ---- domains, memory, regions, windows

Pd::Pd(Device& of) : device(of), pd(must(ibv_alloc_pd(of.context), "ibv_alloc_pd")) {
  count(tally().pds);
}
Pd::~Pd() { destroyed(ibv_dealloc_pd(pd), "ibv_dealloc_pd"); }

Memory::Memory(size_t length_bytes, Rng& rng) : size_(length_bytes) {
  const uint64_t choice = rng.below(10);
  if (choice < 2) {
    // Somewhere in pages that others use as well.
    constexpr size_t kAlignment = 64;
    heap_ = must(std::aligned_alloc(kAlignment, (length_bytes / kAlignment + 1) * kAlignment),
                 "aligned_alloc");
    data_ = static_cast<std::byte*>(heap_);
    return;
  }
  int fd = -1;
  if (choice < 3) {
    fd = memfd_create("hostnic-stress", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(length_bytes)) != 0) die_of_errno("memfd");
  }
  void* mapped = mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE,
                      fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) die_of_errno("mmap");
  if (fd >= 0) close(fd);
  data_ = static_cast<std::byte*>(mapped);
}

Memory::~Memory() {
  if (heap_ != nullptr)
    std::free(heap_);
  else
    munmap(data_, size_);
}

Mr::Mr(std::shared_ptr<Pd> of, const Memory& memory)
    : pd(std::move(of)),
      mr(must(ibv_reg_mr(pd->pd, memory.data(), memory.size(), kAllAccess | IBV_ACCESS_MW_BIND),
              "ibv_reg_mr")) {
  count(tally().mrs);
}
Mr::~Mr() { destroyed(ibv_dereg_mr(mr), "ibv_dereg_mr"); }

Window::Window(std::shared_ptr<Mr> of, ibv_mw_type type)
    : mr(std::move(of)), mw(must(ibv_alloc_mw(mr->pd->pd, type), "ibv_alloc_mw")), rkey(mw->rkey) {
  count(tally().windows);
}
Window::~Window() { destroyed(ibv_dealloc_mw(mw), "ibv_dealloc_mw"); }

// ---- completion queues

Cq::Cq(Device& of, unsigned entries, bool ordered_dispatch, bool with_channel)
    : device(of), ordered(ordered_dispatch), entries_(entries) {
  if (with_channel) {
    channel_ = must(ibv_create_comp_channel(of.context), "ibv_create_comp_channel");
    fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  }
  cq_ = must(ibv_create_cq(of.context, static_cast<int>(entries), this, channel_, 0),
             "ibv_create_cq");
  count(tally().cqs);
}

Cq::~Cq() {
  destroyed(ibv_destroy_cq(cq_), "ibv_destroy_cq");
  if (channel_ != nullptr)
    destroyed(ibv_destroy_comp_channel(channel_), "ibv_destroy_comp_channel");
}

bool Cq::reserve(unsigned entries) {
  if (reserved_.fetch_add(entries) + entries <= entries_) return true;
  reserved_.fetch_sub(entries);
  return false;
}

int Cq::poll_now(Rng& rng) {
  std::array<ibv_wc, 16> completions;
  const int wanted = static_cast<int>(rng.between(1, completions.size()));
  const int taken = ibv_poll_cq(cq_, wanted, completions.data());
  if (taken < 0 || taken > wanted) die(fmt::format("ibv_poll_cq of {} gives {}", wanted, taken));
  for (int i = 0; i < taken; ++i) dispatch(*this, completions[static_cast<size_t>(i)]);
  return taken;
}

int Cq::poll(Rng& rng) {
  if (ordered) {
    const std::unique_lock lock(busy_, std::try_to_lock);
    return lock.owns_lock() ? poll_now(rng) : 0;
  }
  gate_.lock();
  const std::shared_lock lock(busy_);
  gate_.unlock();
  return poll_now(rng);
}

int Cq::wait(Rng& rng) {
  must(ibv_req_notify_cq(cq_, 0), "ibv_req_notify_cq");
  // What came before the arming makes no event.
  if (const int taken = poll(rng); taken != 0) return taken;
  pollfd readable{channel_->fd, POLLIN, 0};
  if (::poll(&readable, 1, 2) == 1) {
    ibv_cq* of = nullptr;
    void* argument = nullptr;
    // Another thread may have taken it.
    if (ibv_get_cq_event(channel_, &of, &argument) == 0) {
      if (of != cq_ || argument != this) die("ibv_get_cq_event names another completion queue");
      ibv_ack_cq_events(of, 1);
      count(tally().cq_events);
    }
  }
  return poll(rng);
}

void Cq::quiesce() {
  gate_.lock();
  busy_.lock();
  busy_.unlock();
  gate_.unlock();
}

void Cq::drain(Rng& rng) {
  const std::lock_guard first(gate_);
  const std::lock_guard lock(busy_);
  // Others may go on to fill it.
  for (unsigned taken = 0; taken < entries_;) {
    const int now = poll_now(rng);
    if (now == 0) return;
    taken += static_cast<unsigned>(now);
  }
}

// ---- shared receive queues

Srq::Srq(Device& device, Rng& rng)
    : memory_(size_t{kSlots} * kSlotBytes, rng),
      pd_(std::make_shared<Pd>(device)),
      mr_(std::make_unique<Mr>(pd_, memory_)),
      posted_(kSlots) {
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = kSlots, .max_sge = 1, .srq_limit = 0};
  srq_ = must(ibv_create_srq(pd_->pd, &init), "ibv_create_srq");
  count(tally().srqs);
  for (uint32_t slot = 0; slot < kSlots; ++slot) post(slot);
}

Srq::~Srq() { destroyed(ibv_destroy_srq(srq_), "ibv_destroy_srq"); }

std::span<std::byte> Srq::take(uint32_t slot) {
  const std::lock_guard lock(mutex_);
  if (slot >= kSlots || !posted_[slot])
    die(fmt::format("shared receive {} completes and was not posted", slot));
  posted_[slot] = false;
  return {memory_.data() + size_t{slot} * kSlotBytes, kSlotBytes};
}

void Srq::post(uint32_t slot) {
  const std::lock_guard lock(mutex_);
  ibv_sge sge{reinterpret_cast<uint64_t>(memory_.data()) + uint64_t{slot} * kSlotBytes, kSlotBytes,
              mr_->mr->lkey};
  ibv_recv_wr wr{Id{Kind::kSharedReceive, 0, 0, slot}.word(), nullptr, &sge, 1};
  ibv_recv_wr* bad = nullptr;
  must(ibv_post_srq_recv(srq_, &wr, &bad), "ibv_post_srq_recv");
  posted_[slot] = true;
}

// ---- what connections share

Shared::Shared(Device& of, Rng& rng) : device(of) {
  constexpr int kPds = 4, kCqs = 6, kSrqs = 2;
  for (int i = 0; i < kPds; ++i) pds_.push_back(std::make_shared<Pd>(device));
  for (int i = 0; i < kCqs; ++i) cqs_.push_back(make_cq(device, rng));
  for (int i = 0; i < kSrqs; ++i) srqs_.push_back(std::make_shared<Srq>(device, rng));
}

std::shared_ptr<Cq> Shared::make_cq(Device& device, Rng& rng) {
  return std::make_shared<Cq>(device, kCqEntries, rng.percent(60), rng.percent(20));
}

std::shared_ptr<Pd> Shared::pd(Rng& rng) {
  const std::lock_guard lock(mutex_);
  return pds_[rng.below(pds_.size())];
}

std::shared_ptr<Cq> Shared::cq(Rng& rng) {
  const std::lock_guard lock(mutex_);
  return cqs_[rng.below(cqs_.size())];
}

std::shared_ptr<Srq> Shared::srq(Rng& rng) {
  const std::lock_guard lock(mutex_);
  return srqs_[rng.below(srqs_.size())];
}

void Shared::replace(Rng& rng) {
  auto pd = std::make_shared<Pd>(device);
  auto cq = make_cq(device, rng);
  auto srq = std::make_shared<Srq>(device, rng);
  const std::lock_guard lock(mutex_);
  // What goes by this is destroyed after the lock: the old ones are in these variables now.
  pds_[rng.below(pds_.size())].swap(pd);
  cqs_[rng.below(cqs_.size())].swap(cq);
  srqs_[rng.below(srqs_.size())].swap(srq);
}

}  // namespace hostnic::stress
