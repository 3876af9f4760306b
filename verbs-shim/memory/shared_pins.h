// SPDX-License-Identifier: BSD-3-Clause
// Shared memory that hostnicd can't map, and reaches by the mem fd. Shared pages can be mapped
// twice: a mapping of the library's own keeps them, with the access that the program had when it
// registered them, whatever becomes of its own mapping (unmapped, moved, replaced, protected).
// hostnicd is told that the memory has moved there. With the registrar's lock, but for tell().
#pragma once

#include <cstdint>

#include "verbs-shim/memory/registrar_state.h"
#include "verbs-shim/memory/registration.h"

namespace hostnic::memory {

class SharedPins {
 public:
  explicit SharedPins(RegistrarState& state) : state_(state) {}
  SharedPins(const SharedPins&) = delete;
  SharedPins& operator=(const SharedPins&) = delete;

  // Keeps [start, end) of an area, in a mapping that other registrations of the same may have made.
  // Where the kernel does not make one the program's own is used.
  void keep(const Area& area, uint64_t start, uint64_t end, Described& described);
  // Whether a registration that is just described has [start, end) kept.
  bool is_kept(const Described& described, uint64_t start, uint64_t end) const;
  // Gives the pins of what was described to the registration of that number.
  void give(Described& described, uint64_t number);
  // Lets go of what was described in vain, and of what a registration had.
  void let_go_all(Described& described);
  void release(uint64_t number);
  // Has the devices reach the memory where it is kept, without the lock: after hostnicd has
  // answered and before the registration is anybody's.
  void tell(Registration& registration);
  // A child has no registrations.
  void forget();

 private:
  struct SharedPin {
    uint64_t start = 0, end = 0;  // where the program had it
    uint64_t place = 0;           // where the mapping is
    uint64_t offset = 0;
    uint32_t device_major = 0, device_minor = 0;
    uint64_t inode = 0;
    int prot = 0;
    uint32_t users = 0;
  };
  struct PinUse {
    uint64_t number = 0, place = 0;
  };

  void let_go(uint64_t place);

  RegistrarState& state_;
  RawVector<SharedPin> pins_;
  RawVector<PinUse> pin_uses_;
};

}  // namespace hostnic::memory
