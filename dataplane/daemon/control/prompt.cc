// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/control/prompt.h"

#include <cmdline.h>
#include <cmdline_parse.h>
#include <cmdline_parse_string.h>
#include <cmdline_rdline.h>
#include <cmdline_socket.h>
#include <stdlib.h>
#include <unistd.h>

#include <deque>
#include <sstream>

#include "dataplane/daemon/control/command.h"

namespace hostnic {
namespace {

constexpr size_t kMaxWords = 2;

// The structure that cmdline parses a line into.
struct ParsedTokens {
  cmdline_fixed_string_t words[kMaxWords];
  cmdline_multi_string_t rest;
};

struct Instance {
  const PromptCommand* command;
  bool with_rest;
  Daemon* daemon;
};

void execute(void* parsed, cmdline* terminal, void* data) {
  const auto& instance = *static_cast<const Instance*>(data);
  std::string line = instance.command->words;
  if (instance.with_rest) line += std::string(" ") + static_cast<ParsedTokens*>(parsed)->rest;
  const CommandResult result = run_command(*instance.daemon, Asker{}, line);
  cmdline_printf(terminal, "%s%s", result.text.c_str(), result.error != 0 ? "\n" : "");
}

}  // namespace

// rte_cmdline's description of all commands: for each its words as fixed tokens, alone and followed
// by anything. Built from the registry, so that a command is written once.
struct Prompt::Grammar {
  std::deque<std::string> words;  // addresses stay
  std::deque<cmdline_token_string> tokens;
  std::deque<Instance> instances;
  std::deque<std::vector<char>> inst_storage;
  std::vector<cmdline_parse_inst_t*> list;

  cmdline_parse_token_hdr_t* token(size_t offset, const char* text) {
    cmdline_token_string& token = tokens.emplace_back();
    token.hdr.ops = &cmdline_token_string_ops;
    token.hdr.offset = static_cast<unsigned>(offset);
    token.string_data.str = text;
    return &token.hdr;
  }

  void add(const PromptCommand& command, bool with_rest, Daemon& daemon) {
    std::vector<cmdline_parse_token_hdr_t*> sequence;
    std::istringstream split(command.words);
    for (std::string word; split >> word;) {
      words.push_back(word);
      sequence.push_back(
          token(offsetof(ParsedTokens, words) + sequence.size() * sizeof(cmdline_fixed_string_t),
                words.back().c_str()));
    }
    if (with_rest) sequence.push_back(token(offsetof(ParsedTokens, rest), TOKEN_STRING_MULTI));
    sequence.push_back(nullptr);
    // The memory is allocated as bytes, because cmdline_parse_inst_t ends in a flexible array of
    // tokens.
    const size_t bytes =
        sizeof(cmdline_parse_inst_t) + sequence.size() * sizeof(cmdline_parse_token_hdr_t*);
    auto* inst =
        reinterpret_cast<cmdline_parse_inst_t*>(inst_storage.emplace_back(bytes, 0).data());
    inst->f = execute;
    inst->data = &instances.emplace_back(Instance{&command, with_rest, &daemon});
    inst->help_str = command.help;
    std::copy(sequence.begin(), sequence.end(), inst->tokens);
    list.push_back(inst);
  }
};

Prompt::Prompt() : grammar_(std::make_unique<Grammar>()) {}

std::unique_ptr<Prompt> Prompt::create(Daemon& daemon) {
  if (isatty(STDIN_FILENO) == 0) return nullptr;
  std::unique_ptr<Prompt> prompt(new Prompt);
  for (const PromptCommand* command : all_commands()) {
    prompt->grammar_->add(*command, false, daemon);
    if (*command->usage != 0) prompt->grammar_->add(*command, true, daemon);
  }
  prompt->grammar_->list.push_back(nullptr);
  prompt->cmdline_ = cmdline_stdin_new(prompt->grammar_->list.data(), "hostnicd> ");
  if (prompt->cmdline_ == nullptr) return nullptr;
  return prompt;
}

Prompt::~Prompt() {
  if (cmdline_ != nullptr) cmdline_stdin_exit(cmdline_);  // this frees it, too
}

bool Prompt::handle_input() {
  char input[256];
  const ssize_t count = read(STDIN_FILENO, input, sizeof(input));
  if (count <= 0) return false;
  return cmdline_in(cmdline_, input, static_cast<int>(count)) >= 0;
}

}  // namespace hostnic
