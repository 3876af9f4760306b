// SPDX-License-Identifier: BSD-3-Clause
// A machine that executes the memory accesses of a few short threads in every order that a weakly
// ordered processor may choose, and looks at how each of the executions ends: what x86 never shows
// is found here.
//
// It is a subset of C++'s orders as arm64 may execute them (multi-copy atomic): an access waits for
// earlier ones of its thread only where an order, a fence, an address or a value asks for it; loads
// are made before it is known whether they are wanted; a store may be read by its own thread before
// others see it. It is not stronger than the language where the tests need it: a store and a later
// load are kept apart by fences and by sequentially consistent accesses on both sides only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hostnic::weak {

enum class Order : uint8_t { kRelaxed, kAcquire, kRelease, kBoth, kSequential };

enum class Kind : uint8_t {
  kLoad,
  kStore,
  kAdd,           // a read-modify-write
  kFence,         // atomic_thread_fence(seq_cst)
  kReleaseFence,  // atomic_thread_fence(release)
  kAcquireFence,  // atomic_thread_fence(acquire)
  kFenceAll,      // membarrier: a full fence for every thread
  kSleep,         // futex wait: sleeps if the word has this value
  kWake,          // futex wake
};

using Registers = std::map<std::string, int>;
using Value = std::function<int(const Registers&)>;

struct Step {
  Kind kind = Kind::kLoad;
  std::string word;
  Order order = Order::kRelaxed;
  std::string into;                // the register that a load or an addition fills
  Value value = {};                // of a store, an addition, or for which a sleep waits
  std::vector<std::string> needs;  // registers of `value` and `wanted`
  Value wanted = {};               // 0: the step is left out
};

using Thread = std::vector<Step>;

// How one execution ended.
struct End {
  std::map<std::string, int> words;
  Registers registers;
  std::vector<bool> asleep;  // by thread
};

// Steps, in the words of the code that they stand for. Registers are named uniquely.
inline Step load(std::string word, std::string into, Order order = Order::kRelaxed) {
  return {.kind = Kind::kLoad, .word = std::move(word), .order = order, .into = std::move(into)};
}
inline Step store(std::string word, int value, Order order = Order::kRelaxed) {
  return {.kind = Kind::kStore,
          .word = std::move(word),
          .order = order,
          .value = [value](const Registers&) { return value; }};
}
inline Step add(std::string word, int value, Order order) {
  return {.kind = Kind::kAdd,
          .word = std::move(word),
          .order = order,
          .value = [value](const Registers&) { return value; }};
}
inline Step fence(Kind kind = Kind::kFence) { return {.kind = kind}; }
inline Step sleep_while(std::string word, int value) {
  return {.kind = Kind::kSleep, .word = std::move(word), .value = [value](const Registers&) {
            return value;
          }};
}
inline Step wake(std::string word) { return {.kind = Kind::kWake, .word = std::move(word)}; }
// The step, if the register has that value.
inline Step only_if(const std::string& name, int value, Step step) {
  const Value before = step.wanted;
  step.wanted = [=](const Registers& registers) {
    return (!before || before(registers) != 0) && registers.at(name) == value ? 1 : 0;
  };
  step.needs.push_back(name);
  return step;
}
inline Thread if_equal(const std::string& name, int value, std::initializer_list<Step> steps) {
  Thread all;
  for (const Step& step : steps) all.push_back(only_if(name, value, step));
  return all;
}
inline Thread operator+(Thread first, const Thread& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

class Machine {
 public:
  explicit Machine(std::vector<Thread> threads) : threads_(std::move(threads)) {}

  // Returns every end that the threads may have. All words are 0 at first.
  std::vector<End> ends() {
    State first;
    for (const Thread& thread : threads_) first.status.emplace_back(thread.size(), Status::kAhead);
    visit(first);
    return std::move(ends_);
  }

 private:
  enum class Status : uint8_t { kAhead, kIssued, kAsleep, kDone };
  struct State {
    std::vector<std::vector<Status>> status;
    std::vector<std::vector<int>> issued;  // values of stores that nobody else sees yet
    std::map<std::string, int> words;
    Registers registers;
    auto operator<=>(const State&) const = default;
  };

  static bool is_access(const Step& step) {
    return step.kind == Kind::kLoad || step.kind == Kind::kStore || step.kind == Kind::kAdd;
  }
  static bool loads(const Step& step) {
    return step.kind == Kind::kLoad || step.kind == Kind::kAdd;
  }
  static bool stores(const Step& step) {
    return step.kind == Kind::kStore || step.kind == Kind::kAdd;
  }
  static bool acquires(const Step& step) {
    return loads(step) && step.order != Order::kRelaxed && step.order != Order::kRelease;
  }
  static bool releases(const Step& step) {
    return stores(step) && step.order != Order::kRelaxed && step.order != Order::kAcquire;
  }

  // Whether `b` has to wait until `a`, an earlier step of the same thread, is done: `a_is_issued`
  // if all of it is but that others see its store. An addition has loaded by then.
  static bool waits_for(const Step& b, const Step& a, bool a_is_issued) {
    const auto is_whole = [](const Step& step) {
      return step.kind == Kind::kFence || step.kind == Kind::kFenceAll ||
             step.kind == Kind::kSleep || step.kind == Kind::kWake;
    };
    if (is_whole(a) || is_whole(b)) return true;
    if (a.kind == Kind::kAcquireFence) return true;
    if (b.kind == Kind::kAcquireFence) return loads(a) && !a_is_issued;
    if (b.kind == Kind::kReleaseFence) return is_access(a);
    if (a.kind == Kind::kReleaseFence) return stores(b);
    if ((acquires(a) && !a_is_issued) || releases(b)) return true;
    if (a.order == Order::kSequential && b.order == Order::kSequential) return true;
    return a.word == b.word && !(stores(a) && b.kind == Kind::kLoad);
  }

  void visit(const State& state) {
    if (!seen_.insert(state).second) return;
    bool is_end = true;
    for (size_t t = 0; t < threads_.size(); ++t) {
      for (size_t i = 0; i < threads_[t].size(); ++i) {
        const Status status = state.status[t][i];
        if (status == Status::kAhead && try_step(state, t, i)) is_end = false;
        if (status == Status::kIssued) {
          is_end = false;  // whatever it waits for ends: an addition waits for nothing
          commit(state, t, i);
        }
      }
    }
    if (is_end) note_end(state);
  }

  bool knows(const State& state, const Step& step) const {
    return std::all_of(step.needs.begin(), step.needs.end(),
                       [&](const std::string& name) { return state.registers.contains(name); });
  }

  // Makes the step in a copy of the state and goes on there. Returns false where it must wait.
  bool try_step(const State& state, size_t t, size_t i) {
    const Thread& thread = threads_[t];
    const Step& step = thread[i];
    for (size_t j = 0; j < i; ++j) {
      const Status status = state.status[t][j];
      if (status != Status::kDone && waits_for(step, thread[j], status == Status::kIssued))
        return false;
    }
    const bool is_guess = step.kind == Kind::kLoad;  // loads do not wait for their conditions
    if (!is_guess && !knows(state, step)) return false;
    State next = state;
    next.status[t][i] = Status::kDone;
    if (!is_guess && step.wanted && step.wanted(state.registers) == 0) {
      visit(next);
      return true;
    }
    switch (step.kind) {
      case Kind::kLoad: {
        int value = word(state, step.word);
        for (size_t j = 0; j < i; ++j) {
          if (!stores(thread[j]) || thread[j].word != step.word) continue;
          if (state.status[t][j] == Status::kAhead) return false;
          if (state.status[t][j] == Status::kIssued) value = next.issued[t][j];
        }
        next.registers[step.into] = value;
        break;
      }
      case Kind::kStore:
        issue(next, t, i, step.value(state.registers));
        break;
      case Kind::kAdd:
        if (is_being_added_to(state, step.word)) return false;
        if (!step.into.empty()) next.registers[step.into] = word(state, step.word);
        issue(next, t, i, word(state, step.word) + step.value(state.registers));
        break;
      case Kind::kFenceAll:
        if (!all_between_steps(state, t)) return false;
        break;
      case Kind::kSleep:
        if (word(state, step.word) == step.value(state.registers))
          next.status[t][i] = Status::kAsleep;
        break;
      case Kind::kWake:
        for (size_t other = 0; other < threads_.size(); ++other) {
          for (size_t j = 0; j < threads_[other].size(); ++j) {
            if (next.status[other][j] == Status::kAsleep && threads_[other][j].word == step.word)
              next.status[other][j] = Status::kDone;
          }
        }
        break;
      default:
        break;
    }
    visit(next);
    return true;
  }

  void issue(State& next, size_t t, size_t i, int value) const {
    next.status[t][i] = Status::kIssued;
    next.issued.resize(threads_.size());
    next.issued[t].resize(threads_[t].size());
    next.issued[t][i] = value;
  }

  // Nobody stores to a word between the two halves of an addition to it.
  bool is_being_added_to(const State& state, const std::string& name) const {
    for (size_t t = 0; t < threads_.size(); ++t) {
      for (size_t i = 0; i < threads_[t].size(); ++i) {
        if (state.status[t][i] == Status::kIssued && threads_[t][i].kind == Kind::kAdd &&
            threads_[t][i].word == name)
          return true;
      }
    }
    return false;
  }

  // A store becomes visible to the others.
  void commit(const State& state, size_t t, size_t i) {
    const Step& step = threads_[t][i];
    if (step.kind != Kind::kAdd && is_being_added_to(state, step.word)) return;
    State next = state;
    next.status[t][i] = Status::kDone;
    next.words[step.word] = state.issued[t][i];
    next.issued[t][i] = 0;
    visit(next);
  }

  // Whether all other threads are between two of their steps, as one is that has just been fenced.
  bool all_between_steps(const State& state, size_t but) const {
    for (size_t t = 0; t < threads_.size(); ++t) {
      if (t == but) continue;
      bool is_behind = false;
      for (const Status status : state.status[t]) {
        if (status == Status::kIssued || (is_behind && status == Status::kDone)) return false;
        if (status != Status::kDone) is_behind = true;
      }
    }
    return true;
  }

  static int word(const State& state, const std::string& name) {
    const auto found = state.words.find(name);
    return found != state.words.end() ? found->second : 0;
  }

  void note_end(const State& state) {
    End end{state.words, state.registers, {}};
    for (const auto& thread : state.status) {
      end.asleep.push_back(std::find(thread.begin(), thread.end(), Status::kAsleep) !=
                           thread.end());
    }
    ends_.push_back(std::move(end));
  }

  const std::vector<Thread> threads_;
  std::set<State> seen_;
  std::vector<End> ends_;
};

}  // namespace hostnic::weak
