// SPDX-License-Identifier: BSD-3-Clause
// The function that a traced call goes on to: that of the next library, which is the preloaded one
// of hostnic's devices, libibverbs or librdmacm.
#pragma once

#include <atomic>
#include <cerrno>
#include <type_traits>

namespace hostnic::calls {

// Finds the next definition of a verb or of a function of librdmacm, by the first letters of its
// name, and loads their library where the program has it in a scope of its own only. Null: the
// machine has none. errno stays.
void* find_next(const char* name);

// Is found at first use and not by the initialization of a static, which would be waited for with
// the dynamic linker's lock held.
template <typename Signature>
class Next;

template <typename Result, typename... Arguments>
class Next<Result(Arguments...)> {
 public:
  explicit constexpr Next(const char* name) : name_(name) {}

  Result operator()(Arguments... arguments) {
    Function function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) {
      function = reinterpret_cast<Function>(find_next(name_));
      function_.store(function, std::memory_order_relaxed);
    }
    if (function != nullptr) return function(arguments...);
    errno = ENOSYS;
    if constexpr (std::is_pointer_v<Result>)
      return nullptr;
    else if constexpr (!std::is_void_v<Result>)
      return static_cast<Result>(-1);
  }

 private:
  using Function = Result (*)(Arguments...);
  const char* const name_;
  std::atomic<Function> function_{nullptr};
};

// Inside of a traced function: `next` is what it goes on to.
#define HOSTNIC_NEXT(function)                                                              \
  static constinit ::hostnic::calls::Next<std::remove_pointer_t<decltype(&function)>> next( \
      #function)
#define HOSTNIC_CALL_OF_PROGRAM extern "C" [[gnu::visibility("default")]]

}  // namespace hostnic::calls
