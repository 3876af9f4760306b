// The libibverbs that we stand in front of. Whatever is not ours goes there, so that real adapters
// keep working beside hnicN.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <type_traits>

namespace hostnic::abi {

// Address of `name` under `version` in the real libibverbs, loading it if the program did not; null
// when the machine has none. Any thread.
void* real_verbs_symbol(const char* name, const char* version);

// How many real adapters the program has open. While there are none, an object that is not ours is
// nobody's, and is refused instead of handed to a library that would crash on it.
extern std::atomic<int> real_contexts_open;

// One function of the real library, resolved at first use:
//   static const RealVerb<int(ibv_pd*)> real("ibv_dealloc_pd", "IBVERBS_1.1");
template <typename Signature>
class RealVerb;

template <typename Result, typename... Arguments>
class RealVerb<Result(Arguments...)> {
 public:
  RealVerb(const char* name, const char* version)
      : function_(reinterpret_cast<Result (*)(Arguments...)>(real_verbs_symbol(name, version))) {}

  // For calls that need no object (device lists, fork).
  Result call(Arguments... arguments) const {
    return function_ != nullptr ? function_(arguments...) : refuse(ENOSYS);
  }
  // For calls on an object that is not ours.
  Result foreign(Arguments... arguments) const {
    if (real_contexts_open.load(std::memory_order_relaxed) == 0) return refuse(EINVAL);
    return call(arguments...);
  }

 private:
  // What verbs return on failure: null, or the errno value.
  static Result refuse(int error) {
    errno = error;
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else if constexpr (!std::is_void_v<Result>) {
      return static_cast<Result>(error);
    }
  }

  Result (*function_)(Arguments...);
};

// ibv_query_gid_type has another symbol version in each release; this calls whichever there is.
int real_query_gid_type(ibv_context* context, uint8_t port, unsigned int index, uint32_t* type);

}  // namespace hostnic::abi
