// SPDX-License-Identifier: BSD-3-Clause
// One traced call, from before it is made until it has returned. Where nobody traces, a Call does
// nothing. For any thread, in forked children, and in signal handlers that interrupt another call.
#pragma once

#include <cerrno>
#include <cstdint>

#include "protocol/hostif/trace_ring.h"
#include "verbs-shim/trace/text.h"

namespace hostnic::trace {

// Whether somebody reads what is recorded.
bool is_on();

// Has no destructor that does something: a thread may be cancelled in calls that wait, and this
// library's unwinder is not the program's.
class Call {
 public:
  explicit Call(const char* name);

  bool on() const { return on_; }
  // Arguments: text of the form "pd 0x1234, 16 entries".
  Text& text() { return text_; }
  // Is called when the arguments are there, right before the call is made.
  void begins();

  // Is called with the call's result, and returns it. errno stays as the call left it.
  // 0 is success; other values are errno's, or -1, which says that errno has it.
  int ends(int result);
  // A number of things, 0 or more; negative: failure.
  int ends_with_count(int result);
  void ends_without_result();
  // A pointer: null is failure. `name` is the word in front of its address.
  template <typename Object>
  Object* ends_with(Object* object, const char* name) {
    if (on_) {
      begin_result();
      if (object != nullptr)
        text_.add("%s %p", name, static_cast<const void*>(object));
      else
        add_error("NULL ", saved_errno_);
      finish(object != nullptr ? TraceOutcome::kSuccess : TraceOutcome::kFailure);
    }
    return object;
  }
  // For calls whose result is told by themselves: stops the clock, adds " = ", and is followed by
  // text() and finish(). Only where it is on.
  void begin_result();
  void finish(TraceOutcome outcome);
  // Adds the name and text of an errno value, behind `before`.
  void add_error(const char* before, int error);
  int error() const { return saved_errno_; }

  // For polls that found nothing: they are counted until the thread does something else.
  void ends_as_empty_poll(const void* queue, int entries, bool extended);

 private:
  void returns();

  const char* name_;
  uint64_t start_ns_ = 0, end_ns_ = 0;
  int saved_errno_ = 0;
  bool on_;
  uint16_t depth_ = 0;
  Text text_;
};

// The name of an errno value, as in "EINVAL".
const char* errno_name(int error);

}  // namespace hostnic::trace
