// SPDX-License-Identifier: BSD-3-Clause
// The built library: which symbols it shows under which versions, and what its hooks do in a
// process that is preloaded with it. $HOSTNIC_VERBS_LIBRARY is its path; main() starts itself again
// with it in LD_PRELOAD.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string library() {
  const char* path = getenv("HOSTNIC_VERBS_LIBRARY");
  return path != nullptr ? path : "";
}

std::vector<std::string> lines_of(const std::string& command) {
  // nm need not be preloaded.
  FILE* pipe = popen(("LD_PRELOAD= " + command).c_str(), "r");
  std::vector<std::string> lines;
  char line[1024];
  while (fgets(line, sizeof line, pipe) != nullptr) {
    line[strcspn(line, "\n")] = '\0';
    lines.emplace_back(line);
  }
  EXPECT_EQ(pclose(pipe), 0) << command;
  return lines;
}

struct Symbol {
  char type;
  std::string name;     // without its version
  std::string version;  // empty: none
};

std::vector<Symbol> dynamic_symbols(const std::string& file, const std::string& option) {
  std::vector<Symbol> symbols;
  for (const std::string& line : lines_of("nm -D --with-symbol-versions " + option + " " + file)) {
    std::istringstream words(line);
    std::string type, name;
    if (option == "--defined-only") words >> name;  // the address
    words >> type >> name;
    const size_t at = name.find('@');
    const size_t version = at == std::string::npos ? at : name.find_first_not_of('@', at);
    symbols.push_back(
        {type[0], name.substr(0, at), version == std::string::npos ? "" : name.substr(version)});
  }
  return symbols;
}

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }
bool is_verb(const std::string& name) {
  return starts_with(name, "ibv_") || starts_with(name, "_ibv_");
}

std::string file_of(void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

TEST(AbiLibrary, ShowsOnlyVerbsAndHooks) {
  const std::set<std::string> hooks = {"dlopen",     "dlsym",          "dlvsym",
                                       "open",       "open64",         "openat",
                                       "openat64",   "__open_2",       "__open64_2",
                                       "__openat_2", "__openat64_2",   "fopen",
                                       "fopen64",    "stat",           "stat64",
                                       "lstat",      "lstat64",        "fstatat",
                                       "fstatat64",  "statx",          "__xstat",
                                       "__xstat64",  "__lxstat",       "__lxstat64",
                                       "__fxstatat", "__fxstatat64",   "access",
                                       "eaccess",    "euidaccess",     "faccessat",
                                       "readlink",   "readlinkat",     "__readlink_chk",
                                       "realpath",   "__realpath_chk", "canonicalize_file_name",
                                       "getxattr",   "lgetxattr",      "opendir",
                                       "scandir",    "scandir64",      "connect",
                                       "getifaddrs", "freeifaddrs",    "write",
                                       "writev",     "fstat",          "fstat64",
                                       "__fxstat",   "__fxstat64",     "dup",
                                       "dup2",       "dup3",           "chdir",
                                       "getcwd",     "__getcwd_chk",   "get_current_dir_name",
                                       "glob",       "glob64",         "close",
                                       "closefrom",  "close_range",    "socket",
                                       "bind",       "getsockname",    "setsockopt",
                                       "send",       "sendto",         "sendmsg",
                                       "recv",       "recvfrom",       "recvmsg",
                                       "__recv_chk", "__recvfrom_chk"};
  std::set<std::string> seen;
  // The memory half has hooks of its own (munmap, mmap, ...).
  const std::set<std::string> memory_hooks = {
      "munmap",  "mmap",          "mmap64",      "mremap",
      "madvise", "posix_madvise", "shmdt",       "shmat",
      "brk",     "sbrk",          "realloc",     "reallocarray",
      "_Fork",   "free",          "malloc_trim", "__register_atfork"};
  for (const Symbol& symbol : dynamic_symbols(library(), "--defined-only")) {
    if (symbol.type == 'A') continue;     // the versions themselves
    if (symbol.version == "HOSTNIC_1") {  // for our libibverbs.so.1 and libmrc.so.1
      EXPECT_TRUE(starts_with(symbol.name, "hostnic_")) << symbol.name;
    } else if (is_verb(symbol.name)) {
      EXPECT_TRUE(starts_with(symbol.version, "IBVERBS_")) << symbol.name;
    } else if (!memory_hooks.count(symbol.name)) {
      EXPECT_TRUE(hooks.count(symbol.name)) << symbol.name << " is visible";
      EXPECT_EQ(symbol.version, "") << symbol.name << " would not replace libc's";
      seen.insert(symbol.name);
    }
  }
  EXPECT_EQ(seen, hooks);
}

TEST(AbiLibrary, NeedsNoCxxRuntimeAndNoVerbs) {
  for (const std::string& line : lines_of("readelf -d " + library())) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    for (const char* unwanted : {"libstdc++", "libgcc_s", "libibverbs", "librte_"}) {
      EXPECT_EQ(line.find(unwanted), std::string::npos) << line;
    }
  }
}

// Every version that we define is the one under which the real library has it.
TEST(AbiLibrary, AgreesWithTheRealLibrary) {
  void* real = dlopen("libibverbs.so.1", RTLD_LAZY);
  ASSERT_NE(real, nullptr) << dlerror();
  const std::string path = file_of(dlsym(real, "ibv_wc_status_str"));
  std::set<std::string> theirs, their_versions = {"IBVERBS_1.1"};
  for (const Symbol& symbol : dynamic_symbols(path, "--defined-only")) {
    their_versions.insert(symbol.version);
    theirs.insert(symbol.name + "@" + symbol.version);
  }
  for (const Symbol& symbol : dynamic_symbols(library(), "--defined-only")) {
    if (!is_verb(symbol.name) || starts_with(symbol.version, "IBVERBS_PRIVATE_")) continue;
    if (!their_versions.count(symbol.version)) continue;  // of a newer one
    EXPECT_TRUE(theirs.count(symbol.name + "@" + symbol.version))
        << symbol.name << "@" << symbol.version;
  }
}

// What programs import and we leave to the real library works on public fields or on objects that
// we never create.
TEST(AbiLibrary, DefinesWhatProgramsImport) {
  const std::set<std::string> left_to_the_real_library = {
      "ibv_get_device_name",        "ibv_read_sysfs_file",        "ibv_get_sysfs_path",
      "ibv_wc_status_str",          "ibv_event_type_str",         "ibv_node_type_str",
      "ibv_port_state_str",         "ibv_rate_to_mbps",           "ibv_rate_to_mult",
      "ibv_copy_ah_attr_from_kern", "ibv_copy_qp_attr_from_kern", "ibv_copy_path_rec_from_kern",
      "ibv_copy_path_rec_to_kern"};
  std::set<std::string> ours;
  for (const Symbol& symbol : dynamic_symbols(library(), "--defined-only")) {
    ours.insert(symbol.name + "@" + symbol.version);
  }
  int programs = 0;
  for (const char* program :
       {"/usr/bin/ibv_devinfo", "/usr/bin/ibv_rc_pingpong", "/usr/bin/ib_write_bw",
        "/usr/bin/ib_send_lat", "/usr/bin/qperf", "/usr/lib/x86_64-linux-gnu/librdmacm.so.1",
        "/usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so.0"}) {
    if (access(program, R_OK) != 0) continue;
    ++programs;
    for (const Symbol& symbol : dynamic_symbols(program, "--undefined-only")) {
      if (!is_verb(symbol.name) || left_to_the_real_library.count(symbol.name)) continue;
      EXPECT_TRUE(ours.count(symbol.name + "@" + symbol.version))
          << program << " imports " << symbol.name << "@" << symbol.version;
    }
  }
  EXPECT_GE(programs, 1) << "install ibverbs-utils";
}

class AbiPreloaded : public testing::Test {
 protected:
  // The library is, while this program is not: its runtime is preloaded as well.
  static bool sanitized() {
    return dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ||
           dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
  }
  void SetUp() override {
    ASSERT_EQ(file_of(dlsym(RTLD_DEFAULT, "ibv_get_device_list")), library());
  }
};

TEST_F(AbiPreloaded, LookUpsInLibibverbsFindUs) {
  void* handle = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(file_of(dlsym(handle, "ibv_get_device_list")), library());
  EXPECT_EQ(file_of(dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.1")), library());
  EXPECT_EQ(file_of(dlvsym(handle, "ibv_reg_mr_iova2", "IBVERBS_1.8")), library());
  // The compatibility set and what is not ours stay the real library's.
  EXPECT_NE(file_of(dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.0")), library());
  EXPECT_NE(file_of(dlsym(handle, "ibv_wc_status_str")), library());
  EXPECT_EQ(dlvsym(handle, "ibv_get_device_list", "IBVERBS_9.9"), nullptr);
  EXPECT_EQ(dlsym(handle, "ibv_no_such_verb"), nullptr);
}

TEST_F(AbiPreloaded, OtherHandlesAreNotOurs) {
  void* libc = dlopen("libc.so.6", RTLD_LAZY);
  EXPECT_EQ(dlsym(libc, "ibv_get_device_list"), nullptr);
  EXPECT_NE(dlsym(libc, "malloc"), nullptr);
}

// Whoever watches memory writes a jump over the code that libc's malloc calls, which is not ours.
TEST_F(AbiPreloaded, LookUpsOfSystemCallsFindLibc) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer's functions stand before libc's";
  for (const char* name :
       {"mmap", "mmap64", "munmap", "mremap", "madvise", "brk", "sbrk", "shmat", "shmdt"}) {
    EXPECT_NE(file_of(dlsym(RTLD_DEFAULT, name)), library()) << name;
    EXPECT_EQ(dlsym(RTLD_DEFAULT, name), dlsym(dlopen("libc.so.6", RTLD_LAZY), name)) << name;
  }
  EXPECT_EQ(file_of(dlsym(RTLD_DEFAULT, "free")), library());
}

// "Next" is seen from the caller: behind this program comes the preloaded library. Were the real
// dlsym called from the hook, it would be what comes behind that.
TEST_F(AbiPreloaded, NextMeansTheCallersNext) {
  EXPECT_EQ(file_of(dlsym(RTLD_NEXT, "ibv_get_device_list")), library());
  EXPECT_EQ(file_of(dlvsym(RTLD_NEXT, "ibv_get_device_list", "IBVERBS_1.1")), library());
}

// By whatever path and name libibverbs is loaded: that in NCCL_LIBIBVERBS_SO, a link to it, a copy
// that a Python wheel brought along.
TEST_F(AbiPreloaded, LookUpsInLibibverbsByPathFindUs) {
  void* stock = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(stock, nullptr);
  const std::string file = file_of(dlsym(stock, "ibv_wc_status_str"));
  ASSERT_EQ(file[0], '/');
  char directory[] = "/tmp/abi-library-test.XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string link = std::string(directory) + "/verbs.so";
  const std::string copy = std::string(directory) + "/libverbs-4f5a.so";
  EXPECT_EQ(symlink(file.c_str(), link.c_str()), 0);
  std::ofstream(copy, std::ios::binary) << std::ifstream(file, std::ios::binary).rdbuf();
  for (const std::string& path : {file, link, copy}) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    EXPECT_EQ(file_of(dlsym(handle, "ibv_get_device_list")), library()) << path;
    EXPECT_EQ(file_of(dlvsym(handle, "ibv_reg_mr_iova2", "IBVERBS_1.8")), library()) << path;
    EXPECT_EQ(dlclose(handle), 0);
  }
  unlink(link.c_str());
  unlink(copy.c_str());
  rmdir(directory);
}

class AbiDeepBinding : public AbiPreloaded {
 protected:
  void SetUp() override {
    if (sanitized()) GTEST_SKIP() << "sanitizers refuse the flag";
    AbiPreloaded::SetUp();
  }
  static void* load(const std::string& name) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    EXPECT_NE(handle, nullptr) << dlerror();
    return handle;
  }
  // The file of what the plug-in's function gives.
  template <typename... Arguments>
  static std::string bound_to(void* plugin, const char* function, Arguments... arguments) {
    const auto ask = reinterpret_cast<void* (*)(Arguments...)>(dlsym(plugin, function));
    return ask != nullptr ? file_of(ask(arguments...)) : "no such function";
  }
  static std::string beside_us(const std::string& name) {
    char path[4096] = {};
    EXPECT_GT(readlink("/proc/self/exe", path, sizeof path - 1), 0);
    return std::string(path).substr(0, std::string(path).rfind('/') + 1) + name;
  }
};

// By its bare name: it is found by this program's run path, as dlopen finds it.
TEST_F(AbiDeepBinding, APlugInWithVerbsFindsUs) {
  void* plugin = load("libplugin-linked.so");
  EXPECT_EQ(bound_to(plugin, "linked_device_list"), library());
  EXPECT_EQ(bound_to(plugin, "linked_realpath"), library()) << "sysfs is a part of it";
}

TEST_F(AbiDeepBinding, APlugInWithVerbsBehindALibraryFindsUs) {
  void* plugin = load(beside_us("libplugin-through.so"));
  EXPECT_EQ(bound_to(plugin, "through_device_list"), library());
}

TEST_F(AbiDeepBinding, APlugInThatLooksVerbsUpFindsUs) {
  void* plugin = load(beside_us("libplugin-loading.so"));
  EXPECT_EQ(bound_to(plugin, "loading_device_list", "libibverbs.so.1"), library());
}

TEST_F(AbiDeepBinding, APlugInWithoutVerbsIsBoundAsItWishes) {
  void* plugin = load(beside_us("libplugin-without-verbs.so"));
  EXPECT_NE(bound_to(plugin, "plain_realpath").find("libc.so.6"), std::string::npos);
}

// What cannot be loaded is refused by the dynamic linker, in its words.
TEST_F(AbiDeepBinding, FilesThatAreNoLibraryAreRefused) {
  char path[] = "/tmp/abi-library-test.XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  close(fd);
  for (const std::string& content : {std::string(),
                                     std::string("\x7f"
                                                 "ELF\2\1\1"),
                                     std::string(5000, 'x')}) {
    std::ofstream(path, std::ios::trunc | std::ios::binary) << content;
    EXPECT_EQ(dlopen(path, RTLD_NOW | RTLD_DEEPBIND), nullptr);
    EXPECT_NE(dlerror(), nullptr);
  }
  EXPECT_EQ(dlopen("/nonexistent/plugin.so", RTLD_NOW | RTLD_DEEPBIND), nullptr);
  EXPECT_NE(std::string(dlerror()).find("/nonexistent/plugin.so"), std::string::npos);
  EXPECT_NE(dlopen(nullptr, RTLD_NOW | RTLD_DEEPBIND), nullptr) << "the program itself";
  unlink(path);
}

// Who writes a jump over munmap's code wants the calls of free, too.
TEST_F(AbiPreloaded, HooksOfMappingsGetIntoLibc) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer's functions stand before ours";
  for (const char* name : {"mmap", "mmap64", "munmap", "mremap", "madvise"})
    EXPECT_NE(file_of(dlsym(RTLD_DEFAULT, name)).find("libc.so.6"), std::string::npos) << name;
  EXPECT_EQ(file_of(reinterpret_cast<void*>(&munmap)), library()) << "the program's calls are ours";
}

TEST_F(AbiPreloaded, PathsPassThrough) {
  struct stat status;
  EXPECT_EQ(stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_EQ(open("/sys/class/infiniband/nobody/ports", O_RDONLY), -1);
  EXPECT_EQ(errno, ENOENT);
  const std::string path = "/tmp/abi-library-test." + std::to_string(getpid());
  const int fd = open(path.c_str(), O_CREAT | O_WRONLY, 0640);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u) << "the mode got lost";
  close(fd);
  unlink(path.c_str());
}

}  // namespace

// What goes into LD_PRELOAD: the library, behind the runtime of AddressSanitizer if this program is
// built with it, which wants to be first.
std::string preload() {
  void* sanitizer = dlsym(RTLD_DEFAULT, "__asan_init");
  return sanitizer == nullptr ? library() : file_of(sanitizer) + " " + library();
}

int main(int argc, char** argv) {
  if (library().empty()) {
    fprintf(stderr, "set HOSTNIC_VERBS_LIBRARY to the path of libhostnic-verbs.so\n");
    return 1;
  }
  const char* preloaded = getenv("LD_PRELOAD");
  if (preloaded == nullptr || preload() != preloaded) {
    setenv("LD_PRELOAD", preload().c_str(), 1);
    setenv("HOSTNIC_SOCKET", "/nowhere/hostnicd.sock", 1);
    setenv("HOSTNIC_LOG", "off", 1);
    execv("/proc/self/exe", argv);
    perror("execv");
    return 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
