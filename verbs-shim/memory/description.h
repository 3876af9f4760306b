// SPDX-License-Identifier: BSD-3-Clause
// How hostnicd is told of a registration: by which way it reaches each part, and that the end of
// what the mem fd reaches is noticed. With the registrar's lock.
#pragma once

#include <cstdint>

#include "verbs-shim/memory/registrar_state.h"
#include "verbs-shim/memory/registration.h"
#include "verbs-shim/memory/shared_pins.h"

namespace hostnic::memory {

class Description {
 public:
  Description(RegistrarState& state, SharedPins& pins) : state_(state), pins_(pins) {}
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  Failure describe(const Request& request, Described& described);
  // Marks ranges that are reached by the mem fd, and has their end noticed as far as the kernel can
  // tell.
  void watch(const Described& described);

 private:
  Failure describe_part(const Request& request, const Area& area, PagePlace place, uint64_t start,
                        uint64_t end, Described& described);
  void note_by_file(uint64_t start, uint64_t end);
  Failure describe_mirror(const Request& request, const Area& area, uint64_t start, uint64_t end,
                          Described& described);
  Failure describe_filled(const Request& request, const Area& area, uint64_t start, uint64_t end,
                          Described& described);
  bool find_fill_map(Described& described, uint32_t& index) const;
  bool describe_file(const Request& request, const Area& area, uint64_t start, uint64_t end,
                     Described& described);
  void watch_unpinned(const RawVector<Area>& areas, uint64_t start, uint64_t end);

  RegistrarState& state_;
  SharedPins& pins_;
};

}  // namespace hostnic::memory
