// SPDX-License-Identifier: BSD-3-Clause
// One call that is on its way from a program to its device: what is told of it (trace/), whether it
// is let through (faults/), and what is wrong with it (check/).
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <string_view>
#include <type_traits>

#include "verbs-shim/check/check.h"
#include "verbs-shim/faults/injector.h"
#include "verbs-shim/trace/recorder.h"

namespace hostnic::calls {

using trace::Text;

// Whether anybody wants to know of calls: the tables of objects are left alone else.
inline bool is_watching() { return trace::is_on() || faults::is_on() || check::is_on(); }

// The device that a call is about; null: none, or not known before the call.
inline const ibv_device* device_of(const ibv_device* device) { return device; }
inline const ibv_device* device_of(const ibv_context* context) {
  return context != nullptr ? context->device : nullptr;
}
inline const ibv_device* device_of(const rdma_cm_id* id) {
  return id != nullptr ? device_of(id->verbs) : nullptr;
}
template <typename Object>
const ibv_device* device_of(const Object* object) {
  return object != nullptr ? device_of(object->context) : nullptr;
}

// Has no destructor that does something, as trace::Call.
class Call : public trace::Call {
 public:
  // About nothing that belongs to a device.
  // `caller` is where the function returns to in which the Call is.
  explicit Call(const char* name, const void* caller = __builtin_return_address(0))
      : trace::Call(name), name_(name) {
    if (check::is_on()) check::enters(name, caller);
  }
  template <typename Object>
  Call(const char* name, const Object* object, const void* caller = __builtin_return_address(0))
      : Call(name, caller) {
    if (!faults::is_on()) return;
    device_ = device_of(object);
    if constexpr (std::is_same_v<Object, ibv_qp>) qpn_ = object->qp_num;
  }

  // What a rule may choose by besides.
  void is_of_size(uint64_t size) { size_ = size; }
  void leads_to(int state) { state_ = state; }

  // Is called when the arguments are there, right before the call is made: waits if it is to be
  // late.
  void begins() {
    trace::Call::begins();
    if (faults::is_on()) decide();
  }
  // Whether it is to be made; otherwise failure() is its result.
  bool goes_on() const { return error_ == 0; }
  template <typename Result>
  Result failure() const {
    errno = error_;
    if constexpr (std::is_pointer_v<Result>)
      return nullptr;
    else
      return static_cast<Result>(is_minus_one_ ? -1 : error_);
  }
  // Makes the call, or fails as it does.
  template <typename Function, typename... Arguments>
  auto make(Function& function, Arguments... arguments) const {
    using Result = decltype(function(arguments...));
    return goes_on() ? function(arguments...) : failure<Result>();
  }
  // The same for a call that destroys its object and returns 0 where that is gone.
  template <typename Function, typename Object>
  int destroy(Function& function, Object* object) const {
    if (!check::is_on() || object == nullptr) return make(function, object);
    const check::Going going = check::destroys(object);
    const int result = make(function, object);
    check::destroyed(going, result == 0);
    return result;
  }

 private:
  void decide();

  const char* name_;
  const ibv_device* device_ = nullptr;
  uint32_t qpn_ = 0;
  uint64_t size_ = 0;
  int state_ = -1;
  int error_ = 0;
  bool is_minus_one_ = false;
};

}  // namespace hostnic::calls
