// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/registrar_state.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iterator>

#include "verbs-shim/memory/solitude.h"

namespace hostnic::memory {

Failure failure(int error, const char* format, ...) {
  Failure result;
  result.error = error;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(result.text, sizeof(result.text), format, arguments);
  va_end(arguments);
  return result;
}

void RegistrarState::set_reason(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(reason, sizeof(reason), format, arguments);
  va_end(arguments);
}

// Copying needs the mem fd and pagemap, too.
bool RegistrarState::can_migrate() const {
  return migration_enabled() && mirror_fd >= 0 && mem_fd >= 0 && pagemap_fd >= 0 &&
         userfault.mode() != UserfaultMode::kNone;
}

// Another thread might discard, move or unmap pages by a bare system call at the very moment when
// they are taken out, and its change would be undone or would hit what took their place. No
// userfaultfd prevents that.
bool RegistrarState::may_move_pages() const { return is_alone(own_threads); }

bool RegistrarState::is_of_mirror(const Area& area) const {
  return area.shared && mirror_inode != 0 &&
         area.same_file_as(mirror_major, mirror_minor, mirror_inode);
}

bool RegistrarState::is_mirror(const Area& area) const {
  return area.offset == area.start && is_of_mirror(area);
}

FileRange RegistrarState::mirror_range(uint64_t start, uint64_t end) const {
  return {mirror_major, mirror_minor, mirror_inode, start, end};
}

void RegistrarState::forget_views(uint64_t start, uint64_t end) {
  for (size_t i = 0; i < moved_views.size();) {
    const View view = moved_views[i];
    if (view.end <= start || end <= view.start) {
      i++;
      continue;
    }
    moved_views.erase(moved_views.begin() + static_cast<ptrdiff_t>(i));
    if (view.start < start) moved_views.push_back({view.start, start, view.offset});
    if (end < view.end) moved_views.push_back({end, view.end, view.offset + (end - view.start)});
  }
}

void RegistrarState::update_bounds() {
  uint64_t low = table.empty() ? UINT64_MAX : table.begin()->first;
  uint64_t high = table.empty() ? 0 : std::prev(table.end())->second.end;
  for (const View& view : moved_views) {
    low = std::min(low, view.start);
    high = std::max(high, view.end);
  }
  lowest.store(low, std::memory_order_relaxed);
  highest.store(high, std::memory_order_relaxed);
}

bool RegistrarState::any_registered(uint64_t start, uint64_t end) {
  for (auto it = table.first_after(start); it != table.end() && it->first < end; ++it)
    if (it->second.registrations != 0) return true;
  return false;
}

bool RegistrarState::in_table(uint64_t start, uint64_t end) {
  const auto range = table.first_after(start);
  return range != table.end() && range->first < end;
}

void RegistrarState::watch_range(const RawVector<Area>& areas, uint64_t start, uint64_t end) {
  for (const Area& area : areas)
    if (area.start < end && start < area.end && !is_of_mirror(area))
      watch.watch(area.start, area.end);
}

}  // namespace hostnic::memory
