// SPDX-License-Identifier: BSD-3-Clause
// The libibverbs that we stand in front of. Whatever is not ours goes there, so that real adapters
// keep working beside hnicN.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <type_traits>

namespace hostnic::abi {

enum class MachineLibrary : uint32_t { kVerbs, kRdmaCm };

// The address of `name` under `version` in one of the machine's libraries, loading it if the
// program did not; null when there is none. Ours of the same names don't count. For any thread.
void* machine_symbol(MachineLibrary library, const char* name, const char* version);

// It is machine_symbol() of the real libibverbs.
void* real_verbs_symbol(const char* name, const char* version);

// The number of real adapters that the program has open. While there are none, an object that is
// not ours is nobody's (any more), and is refused as the kernel would instead of handed to a
// library that would crash on it.
extern std::atomic<int> real_contexts_open;

// One function of the real library, resolved at first use. Not by the initialization of a static:
// it would be waited for with the dynamic linker's lock held by a thread that loads a library whose
// constructor asks for devices, while the one that resolves waits for that lock.
//   static constinit RealVerb<int(ibv_pd*)> real("ibv_dealloc_pd", "IBVERBS_1.1");
template <typename Signature>
class RealVerb;

template <typename Result, typename... Arguments>
class RealVerb<Result(Arguments...)> {
 public:
  constexpr RealVerb(const char* name, const char* version) : name_(name), version_(version) {}

  // Calls the function where it needs no object of the library (device lists, fork).
  Result call(Arguments... arguments) {
    const Function function = resolved();
    return function != nullptr ? function(arguments...) : refuse(ENOSYS);
  }
  // Calls the function on an object that is not ours.
  Result foreign(Arguments... arguments) {
    if (real_contexts_open.load(std::memory_order_relaxed) == 0) return refuse(ENOENT);
    return call(arguments...);
  }

 private:
  using Function = Result (*)(Arguments...);

  // Finds the function; threads that come at the same time find the same.
  Function resolved() {
    if (asked_.load(std::memory_order_acquire)) return function_.load(std::memory_order_relaxed);
    const auto found = reinterpret_cast<Function>(real_verbs_symbol(name_, version_));
    function_.store(found, std::memory_order_relaxed);
    asked_.store(true, std::memory_order_release);
    return found;
  }

  // Returns what verbs return on failure: null, or the errno value.
  static Result refuse(int error) {
    errno = error;
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else if constexpr (!std::is_void_v<Result>) {
      return static_cast<Result>(error);
    }
  }

  const char* const name_;
  const char* const version_;
  std::atomic<Function> function_{nullptr};
  std::atomic<bool> asked_{false};
};

// Calls ibv_query_gid_type under whichever symbol version there is: each release has another.
int real_query_gid_type(ibv_context* context, uint8_t port, unsigned int index, uint32_t* type);

}  // namespace hostnic::abi
