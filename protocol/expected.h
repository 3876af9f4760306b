// SPDX-License-Identifier: BSD-3-Clause
// A value or the reason there is none: what our own code returns where bad input is expected.
// A subset of C++23's std::expected under the same member names, so that it can be replaced by it.
//
//   Expected<Config, ConfigError> load(...);
//   if (auto config = load(path)) use(*config); else print(config.error());
//   return Unexpected(ConfigError{...});
#pragma once

#include <cassert>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace hostnic {

// Wraps an error, so that a T and an E of the same type stay apart.
template <typename E>
class Unexpected {
 public:
  explicit Unexpected(E error) : error_(std::move(error)) {}
  const E& error() const& { return error_; }
  E&& error() && { return std::move(error_); }

 private:
  E error_;
};

// An Expected has exactly one of value and error. Reading the one that is absent is a programming
// error and is asserted. Not thread-safe beyond what T and E are.
template <typename T, typename E>
class [[nodiscard]] Expected {
 public:
  using value_type = T;
  using error_type = E;

  // Makes a success from anything that converts to T, so that `return value;` works.
  template <typename U = T>
  requires(std::is_constructible_v<T, U> && !std::is_same_v<std::remove_cvref_t<U>, Expected>)
      Expected(U&& value)  // NOLINT(bugprone-forwarding-reference-overload): constrained above
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}
  template <typename G>
  requires std::is_constructible_v<E, G> Expected(Unexpected<G> unexpected)
      : state_(std::in_place_index<1>, std::move(unexpected).error()) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    assert(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(has_value());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  template <typename U>
  T value_or(U&& fallback) const& {
    return has_value() ? value() : static_cast<T>(std::forward<U>(fallback));
  }

  const E& error() const& {
    assert(!has_value());
    return *std::get_if<1>(&state_);
  }
  E&& error() && {
    assert(!has_value());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, E> state_;
};

// The Expected whose success has no value.
template <typename E>
class [[nodiscard]] Expected<void, E> {
 public:
  using value_type = void;
  using error_type = E;

  Expected() = default;
  template <typename G>
  requires std::is_constructible_v<E, G> Expected(Unexpected<G> unexpected)
      : error_(std::move(unexpected).error()) {}

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const E& error() const& {
    assert(!has_value());
    return *error_;
  }

 private:
  std::optional<E> error_;
};

}  // namespace hostnic
