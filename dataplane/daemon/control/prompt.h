// SPDX-License-Identifier: BSD-3-Clause
// The prompt on a terminal, by rte_cmdline as in dpdk-testpmd: line editing, history, completion
// of command words, `?` for help. What a line does is the registry's.
#pragma once

#include <memory>
#include <string>
#include <vector>

struct cmdline;

namespace hostnic {

class Daemon;

class Prompt {
 public:
  // Makes a prompt; returns null when stdin is no terminal. All members are for the control thread.
  // There may be one prompt at a time.
  static std::unique_ptr<Prompt> create(Daemon& daemon);
  ~Prompt();  // gives the terminal back as it was
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  // Reads from stdin, which is readable. Returns false if it has ended.
  bool handle_input();

 private:
  struct Grammar;
  Prompt();
  std::unique_ptr<Grammar> grammar_;
  cmdline* cmdline_ = nullptr;
};

}  // namespace hostnic
