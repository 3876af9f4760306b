// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/own_variables.h"

#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "verbs-shim/memory/raw_memory.h"

extern "C" void* __tls_get_addr(void*);

namespace hostnic::memory {
namespace {

struct Variables {
  std::atomic<uint64_t> start{0}, end{0};
};
constexpr size_t kMostParts = 16;  // writable segments of the three
std::array<Variables, kMostParts> parts;

bool covers(const dl_phdr_info& object, const ElfW(Phdr) & header, uint64_t at) {
  return header.p_type == PT_LOAD && at - (object.dlpi_addr + header.p_vaddr) < header.p_memsz;
}

int take_object(dl_phdr_info* object, size_t, void* counted) {
  auto& count = *static_cast<size_t*>(counted);
  const uint64_t inside[] = {reinterpret_cast<uint64_t>(&::pread),
                             reinterpret_cast<uint64_t>(&::__tls_get_addr),
                             reinterpret_cast<uint64_t>(&find_own_variables)};
  const ElfW(Phdr)* const first = object->dlpi_phdr;
  const ElfW(Phdr)* const last = first + object->dlpi_phnum;
  const bool is_ours = std::ranges::any_of(inside, [&](uint64_t at) {
    return std::any_of(first, last,
                       [&](const auto& header) { return covers(*object, header, at); });
  });
  for (const ElfW(Phdr)* header = first; is_ours && header != last; ++header) {
    if (header->p_type != PT_LOAD || (header->p_flags & PF_W) == 0 || count == kMostParts) continue;
    const uint64_t start = object->dlpi_addr + header->p_vaddr;
    parts[count].start.store(page_down(start));
    parts[count++].end.store(page_up(start + header->p_memsz));
  }
  return 0;
}

}  // namespace

void find_own_variables() {
  size_t count = 0;
  dl_iterate_phdr(take_object, &count);
}

ThreadPages own_thread_pages() {
  // Below the control block on x86-64, above it on arm64.
  constexpr uint64_t kVariables = 16 * 1024;
  const auto at = static_cast<uint64_t>(pthread_self());
  return {page_down(at - kVariables), page_up(at + kVariables)};
}

bool holds_own_variables(uint64_t start, uint64_t end) {
  return std::ranges::any_of(parts, [&](const Variables& part) {
    return start < part.end.load() && part.start.load() < end;
  });
}

}  // namespace hostnic::memory
