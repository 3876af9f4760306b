// SPDX-License-Identifier: BSD-3-Clause
// Finds libraries where the dynamic linker would (ld.so(8)), as far as files that are searched for
// what they depend on need it: without hardware capabilities, and with $ORIGIN alone.
#include <dlfcn.h>
#include <limits.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "verbs-shim/elf/library_file.h"
#include "verbs-shim/elf/mapped_file.h"
#include "verbs-shim/elf/symbols.h"

namespace hostnic::elf {
namespace {

// The most files that are looked into: more than a program has libraries; bounds the work.
constexpr size_t kMaxFiles = 1024;

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string program() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

// Directories that the dynamic linker gives for what the code at `caller` loads, and the directory
// that $ORIGIN means there.
struct Caller {
  std::vector<std::string> directories;
  std::string origin;

  explicit Caller(const void* address) {
    Dl_info info;
    link_map* map = nullptr;
    if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
        map == nullptr)
      map = _r_debug.r_map;  // the caller is generated code: the program's map is taken
    origin = directory_of(*map->l_name != '\0' ? map->l_name : program());
    Dl_serinfo size;
    if (dlinfo(map, RTLD_DI_SERINFOSIZE, &size) != 0) return;
    // dlinfo wants the size in there as well.
    std::vector<std::max_align_t> room(size.dls_size / sizeof(std::max_align_t) + 1);
    auto* paths = reinterpret_cast<Dl_serinfo*>(room.data());
    if (dlinfo(map, RTLD_DI_SERINFOSIZE, paths) != 0) return;
    if (dlinfo(map, RTLD_DI_SERINFO, paths) != 0) return;
    for (unsigned i = 0; i < paths->dls_cnt; ++i)
      directories.emplace_back(paths->dls_serpath[i].dls_name);
  }
};

// Replaces $ORIGIN; empty where something else is to be replaced.
std::string expanded(std::string text, const std::string& origin) {
  for (const char* token : {"$ORIGIN", "${ORIGIN}"}) {
    for (size_t at = text.find(token); at != std::string::npos;
         at = text.find(token, at + origin.size()))
      text.replace(at, strlen(token), origin);
  }
  return text.find('$') == std::string::npos ? text : std::string();
}

std::vector<std::string> split_path(const std::string& path, const std::string& origin) {
  std::vector<std::string> directories;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    std::string directory = expanded(path.substr(at, end - at), origin);
    if (!directory.empty()) directories.push_back(std::move(directory));
    at = end + 1;
  }
  return directories;
}

// /etc/ld.so.cache in the format of glibc 2.2 and later, which may follow that of before.
class LinkerCache {
 public:
  LinkerCache() {
    if (file_.size() == 0) return;
    const void* magic = memmem(file_.bytes(), file_.size(), kMagic, strlen(kMagic));
    if (magic == nullptr) return;
    start_ = static_cast<size_t>(static_cast<const char*>(magic) - file_.bytes());
    file_.read(start_ + strlen(kMagic), entries_);
  }

  std::string find(const std::string& name) const {
    for (size_t i = 0; i < entries_; ++i) {
      Entry entry{};
      if (!file_.read(start_ + kHeaderBytes + i * sizeof(Entry), entry)) break;
      if (entry.flags == kX8664Library && text(entry.name) == name) return text(entry.path);
    }
    return {};
  }

 private:
  struct Entry {
    int32_t flags;
    uint32_t name, path;  // offsets from the format's start
    uint32_t os_version;
    uint64_t capabilities;
  };
  static constexpr char kMagic[] = "glibc-ld.so.cache1.1";
  static constexpr size_t kHeaderBytes = 48;
  static constexpr int32_t kX8664Library = 0x0303;

  std::string text(uint32_t offset) const {
    const size_t at = start_ + offset;
    if (at >= file_.size()) return {};
    return {file_.bytes() + at, strnlen(file_.bytes() + at, file_.size() - at)};
  }

  const MappedFile file_{"/etc/ld.so.cache"};
  size_t start_ = 0;
  uint32_t entries_ = 0;
};

// Whether a library of this name is in the process. Such names have no slash, and the path that it
// was found under ends with it.
bool is_loaded(const std::string& name) {
  const auto same = [](dl_phdr_info* info, size_t, void* wanted) {
    const auto& text = *static_cast<const std::string*>(wanted);
    const char* slash = strrchr(info->dlpi_name, '/');
    return text == (slash != nullptr ? slash + 1 : info->dlpi_name) ? 1 : 0;
  };
  return dl_iterate_phdr(same, const_cast<std::string*>(&name)) != 0;
}

// The libraries that one call brings in, breadth first.
class Closure {
 public:
  explicit Closure(const void* caller) : caller_(caller) {}

  bool brings_verbs(const std::string& name) {
    if (look_into(name, {}, caller_.origin)) return true;
    // Files are added while the loop runs.
    for (size_t i = 0; i < files_.size() && names_.size() < kMaxFiles; ++i) {
      const File file = files_[i];
      for (const std::string& each : file.needed) {
        if (std::find(names_.begin(), names_.end(), each) != names_.end()) continue;
        names_.push_back(each);
        if (!is_loaded(each) && look_into(each, file.run_path, file.origin)) return true;
      }
    }
    return false;
  }

 private:
  struct File {
    std::vector<std::string> needed, run_path;
    std::string origin;
  };

  // Whether the file that `name` means uses verbs; one that is not found does not.
  bool look_into(const std::string& name, const std::vector<std::string>& run_path,
                 const std::string& origin) {
    if (name.find('/') != std::string::npos) return read(expanded(name, origin)).value_or(false);
    for (const auto* directories : {&run_path, &caller_.directories}) {
      for (const std::string& directory : *directories)
        if (const auto verbs = read(directory + "/" + name)) return *verbs;
    }
    return read(cache_.find(name)).value_or(false);
  }

  // Reads a file; returns nothing if there is no such file.
  std::optional<bool> read(const std::string& path) {
    if (path.empty()) return std::nullopt;
    const auto file = read_library_file(path.c_str());
    if (!file) return std::nullopt;
    const std::string origin = directory_of(path);
    files_.push_back({file->needed, split_path(file->run_path, origin), origin});
    return file->names_verbs;
  }

  const Caller caller_;
  const LinkerCache cache_;
  std::vector<std::string> names_;
  std::vector<File> files_;
};

}  // namespace

bool brings_verbs(const char* name, const void* caller) {
  return Closure(caller).brings_verbs(name);
}

std::string machine_library(const char* name) {
  std::vector<std::string> candidates = {LinkerCache().find(name)};
  for (const char* directory : {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64",
                                "/usr/lib64", "/lib", "/usr/lib"})
    candidates.push_back(std::string(directory) + "/" + name);
  for (const std::string& path : candidates) {
    if (path.empty()) continue;
    const auto file = read_library_file(path.c_str());
    if (file && std::find(file->needed.begin(), file->needed.end(), "libhostnic-verbs.so") ==
                    file->needed.end())
      return path;
  }
  return {};
}

}  // namespace hostnic::elf
