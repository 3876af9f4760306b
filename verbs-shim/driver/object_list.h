// SPDX-License-Identifier: BSD-3-Clause
// The library's end of the board of objects (protocol/hostif/object_board.h). Any thread; without a
// board all of it does nothing.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "protocol/hostif/object_board.h"

namespace hostnic::driver {

class ObjectList {
 public:
  static constexpr uint32_t kNoLine = UINT32_MAX;

  void use(ObjectBoard& board) { board_ = &board; }
  // Gives an object a line; kNoLine: the board is full.
  uint32_t add(const ObjectLine& object);
  // These do nothing for kNoLine.
  void remove(uint32_t line);
  void set_users(uint32_t line, uint32_t users);
  void set_entries(uint32_t line, uint32_t entries);

 private:
  ObjectEntry* at(uint32_t line) { return line < kBoardEntries ? &board_->entry[line] : nullptr; }

  ObjectBoard* board_ = nullptr;
  std::mutex mutex_;
  std::vector<uint32_t> free_;  // under mutex_
  uint32_t end_ = 0;            // under mutex_; the board's own word is anybody's to write
};

}  // namespace hostnic::driver
