// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/gpu.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>

#include "dataplane/cli/locate.h"
#include "protocol/hostif/gpu_options.h"

namespace hostnic::cli {
namespace {

// Puts a word in front of those of a variable, unless it is there.
void put_in_front(const char* variable, const std::string& word) {
  const char* const before = getenv(variable);
  if (before == nullptr || *before == '\0') {
    setenv(variable, word.c_str(), 1);
    return;
  }
  const std::string all = fmt::format(":{}:", before);
  if (all.find(":" + word + ":") == std::string::npos)
    setenv(variable, fmt::format("{}:{}", word, before).c_str(), 1);
}

}  // namespace

std::string check_gpus(const std::string& gpus) {
  const auto parsed = parse_gpu_options(gpus);
  return parsed ? std::string() : parsed.error();
}

Expected<void, std::string> set_gpu_environment(const std::string& gpus) {
  auto library = find_gpu_library();
  if (!library) return Unexpected(library.error());
  if (library->find_first_of(": \t") != std::string::npos)
    return Unexpected(fmt::format(
        "{} can't be preloaded: the dynamic linker takes no path with a space or colon", *library));
  put_in_front("LD_PRELOAD", *library);
  put_in_front("LD_LIBRARY_PATH", std::filesystem::path(*library).parent_path().string());
  const char* const before = getenv("HOSTNIC_GPU");
  // The last count is what counts.
  const std::string words = before == nullptr ? gpus : fmt::format("{},{}", before, gpus);
  if (const std::string wrong = check_gpus(words); !wrong.empty())
    return Unexpected("HOSTNIC_GPU: " + wrong);
  setenv("HOSTNIC_GPU", words.c_str(), 1);
  return {};
}

}  // namespace hostnic::cli
