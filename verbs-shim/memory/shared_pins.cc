// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/shared_pins.h"

#include <algorithm>

#include "verbs-shim/memory/critical.h"

namespace hostnic::memory {

void SharedPins::keep(const Area& area, uint64_t start, uint64_t end, Described& described) {
  const uint64_t offset = area.offset + (start - area.start);
  const auto known = std::ranges::find_if(pins_, [&](const SharedPin& pin) {
    return pin.start == start && pin.end == end && pin.offset == offset && pin.prot == area.prot &&
           area.same_file_as(pin.device_major, pin.device_minor, pin.inode);
  });
  described.pins.reserve(described.pins.size() + 1);
  if (known != pins_.end()) {
    known->users++;
    described.pins.push_back(known->place);
    return;
  }
  pins_.reserve(pins_.size() + 1);
  // A length of 0 asks for a second mapping of shared memory.
  void* const place = raw_mremap(pointer(start), 0, end - start, MREMAP_MAYMOVE, nullptr);
  if (place == MAP_FAILED) return;
  raw_munlock(place, end - start);
  raw_madvise(place, end - start, MADV_DONTFORK);
  pins_.push_back({start, end, address(place), offset, area.device_major, area.device_minor,
                   area.inode, area.prot, 1});
  described.pins.push_back(address(place));
}

bool SharedPins::is_kept(const Described& described, uint64_t start, uint64_t end) const {
  return std::ranges::any_of(described.pins, [&](uint64_t place) {
    return std::ranges::any_of(pins_, [&](const SharedPin& pin) {
      return pin.place == place && pin.start <= start && end <= pin.end;
    });
  });
}

void SharedPins::let_go(uint64_t place) {
  const auto pin = std::ranges::find(pins_, place, &SharedPin::place);
  if (pin == pins_.end() || --pin->users != 0) return;
  raw_munmap(pointer(pin->place), pin->end - pin->start);
  pins_.erase(pin);
}

void SharedPins::release(uint64_t number) {
  for (const PinUse& use : pin_uses_)
    if (use.number == number) let_go(use.place);
  std::erase_if(pin_uses_, [=](const PinUse& use) { return use.number == number; });
}

void SharedPins::give(Described& described, uint64_t number) {
  if (described.pins.empty()) return;
  pin_uses_.reserve(pin_uses_.size() + described.pins.size());
  for (const uint64_t place : described.pins) pin_uses_.push_back({number, place});
  described.pins.clear();
}

void SharedPins::let_go_all(Described& described) {
  for (const uint64_t place : described.pins) let_go(place);
  described.pins.clear();
}

void SharedPins::forget() {
  pins_.clear();
  pin_uses_.clear();
}

void SharedPins::tell(Registration& registration) try {
  RawVector<SharedPin> pins;
  {
    const Critical critical(state_);
    for (const PinUse& use : pin_uses_)
      if (use.number == registration.number)
        pins.push_back(*std::ranges::find(pins_, use.place, &SharedPin::place));
  }
  if (pins.empty()) return;
  // hostnicd knows the registration: a change that waits for its end is told before these.
  registration.registering = Revoker::Registering();
  for (const SharedPin& pin : pins)
    state_.revoker.tell({{pin.start, pin.end - pin.start, MemoryChangeKind::kMoved, 0, pin.place},
                         /*noted=*/true});
} catch (...) {  // no memory: the program's own mapping is used
}

}  // namespace hostnic::memory
