// SPDX-License-Identifier: BSD-3-Clause
// Where the symbols of our libibverbs.so.1 and librdmacm.so.1 lead to.
#include <dlfcn.h>

#include <atomic>

#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/elf/symbols.h"
#include "verbs-shim/libraries/forward.h"

namespace hostnic::abi {
namespace {

// Finds a function of this library, of which there is one in a process, preloaded or not.
void* own_symbol(const char* name, const char* version) {
  using Dlvsym = void* (*)(void*, const char*, const char*);
  const auto real_dlvsym = reinterpret_cast<Dlvsym>(elf::libc_symbol("dlvsym"));
  Dl_info info;
  if (real_dlvsym == nullptr || dladdr(reinterpret_cast<const void*>(&own_symbol), &info) == 0)
    return nullptr;
  void* self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return self != nullptr ? real_dlvsym(self, name, version) : nullptr;
}

// Says once of each library that a function is in none of this machine's.
void report_missing(ForwardTo to, const char* name, const char* version) {
  static constinit std::atomic<bool> said_of_rdma_cm{false}, said_of_verbs{false};
  const bool is_rdma_cm = to == ForwardTo::kRdmaCm;
  if ((is_rdma_cm ? said_of_rdma_cm : said_of_verbs).exchange(true)) return;
  if (is_rdma_cm)
    log_warn("no librdmacm.so.1 of this machine has %s (%s), which ours leads to: it fails", name,
             version);
  else
    log_debug("no libibverbs.so.1 of this machine has %s (%s): it fails", name, version);
}

}  // namespace
}  // namespace hostnic::abi

// See libraries/forward.h.
HOSTNIC_VERB void* hostnic_library_symbol(hostnic::ForwardTo to, const char* name,
                                          const char* version) {
  using namespace hostnic;
  using namespace hostnic::abi;
  const int saved_errno = errno;
  const CancellationOff cancellation_off;
  void* found = nullptr;
  switch (to) {
    case ForwardTo::kOurVerbs:
      found = own_symbol(name, version);
      break;
    case ForwardTo::kVerbs:
      found = machine_symbol(MachineLibrary::kVerbs, name, version);
      break;
    case ForwardTo::kRdmaCm:
      found = machine_symbol(MachineLibrary::kRdmaCm, name, version);
      break;
  }
  if (found == nullptr) report_missing(to, name, version);
  errno = saved_errno;
  return found;
}
