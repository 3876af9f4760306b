// SPDX-License-Identifier: BSD-3-Clause
// Where the pages of a registration go: they count in the table, and private ones migrate. With the
// registrar's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "verbs-shim/memory/page_release.h"
#include "verbs-shim/memory/registrar_state.h"
#include "verbs-shim/memory/registration.h"

namespace hostnic::memory {

class Pinning {
 public:
  Pinning(RegistrarState& state, PageRelease& release) : state_(state), release_(release) {}
  Pinning(const Pinning&) = delete;
  Pinning& operator=(const Pinning&) = delete;

  void pin(Request& request);
  // Counts the pages in the table, also those that are not mapped: nothing here may migrate now or
  // later, since a transfer by the mem fd that met the migration would fail.
  void pin_on_demand(Request& request);

 private:
  void pin_area(Request& request, const Area& area, uint64_t start, uint64_t end);
  void pin_new(Request& request, const Area& area, uint64_t start, uint64_t end);
  void migrate(Request& request, const Area& area, uint64_t start, uint64_t end);
  void migrate_now(Request& request, const Area& area, uint64_t start, uint64_t end);
  bool migrate_late(Request& request, const Area& area, uint64_t start, uint64_t end);
  void begin_migration();
  void migrated(Request& request, uint64_t start, const PageRange& range);
  bool too_many_areas();
  bool may_migrate(Request& request, const Area& area);
  bool may_migrate_now(Request& request);

  RegistrarState& state_;
  PageRelease& release_;
  size_t areas_counted_ = 0, adds_since_count_ = 0;
};

}  // namespace hostnic::memory
