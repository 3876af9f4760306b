// SPDX-License-Identifier: BSD-3-Clause
// CUDA's, HIP's and HSA's interfaces of the stand-in, as programs call them: by name, with numbers
// of their own headers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

extern "C" {
using CUdeviceptr = unsigned long long;
int cuInit(unsigned int);
int cuDeviceGetCount(int*);
int cuDeviceGet(int*, int);
int cuDeviceGetName(char*, int, int);
int cuDeviceGetAttribute(int*, int, int);
int cuDeviceGetByPCIBusId(int*, const char*);
int cuDeviceGetPCIBusId(char*, int, int);
int cuCtxCreate_v2(void**, unsigned int, int);
int cuCtxDestroy_v2(void*);
int cuCtxGetCurrent(void**);
int cuCtxSetCurrent(void*);
int cuCtxGetDevice(int*);
int cuMemAlloc_v2(CUdeviceptr*, size_t);
int cuMemAllocManaged(CUdeviceptr*, size_t, unsigned int);
int cuMemFree_v2(CUdeviceptr);
int cuMemcpyDtoH_v2(void*, CUdeviceptr, size_t);
int cuMemsetD32_v2(CUdeviceptr, unsigned int, size_t);
int cuMemGetAddressRange_v2(CUdeviceptr*, size_t*, CUdeviceptr);
int cuMemGetHandleForAddressRange(void*, CUdeviceptr, size_t, int, unsigned long long);
int cuPointerGetAttribute(void*, int, CUdeviceptr);
int cuPointerGetAttributes(unsigned int, const int*, void**, CUdeviceptr);
int cuPointerSetAttribute(const void*, int, CUdeviceptr);
int cuLaunchKernel();
int cuGetErrorName(int, const char**);
int cuEventCreate(void**, unsigned int);
int cuEventRecord(void*, void*);
int cuEventQuery(void*);
int cuEventDestroy_v2(void*);
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int cudaMemcpy(void*, const void*, size_t, int);
int cudaGetLastError();
int cudaGetDeviceProperties(void*, int);
struct Facts {
  int type, device;
  void *device_pointer, *host_pointer;
  int is_managed;
  unsigned int flags;
};
int cudaPointerGetAttributes(Facts*, const void*);
int hipMalloc(void**, size_t);
int hipFree(void*);
int hipMemcpy(void*, const void*, size_t, int);
int hipHostMalloc(void**, size_t, unsigned int);
int hipHostFree(void*);
int hipPointerGetAttributes(Facts*, const void*);
int hipModuleLaunchKernel();
struct hsa_agent_t {
  uint64_t handle;
};
struct PointerInfo {
  uint32_t size;
  int type;
  void *agent_base, *host_base;
  size_t bytes;
  void* user;
  hsa_agent_t owner;
  uint32_t flags;
};
int hsa_init();
int hsa_iterate_agents(int (*)(hsa_agent_t, void*), void*);
int hsa_agent_get_info(hsa_agent_t, int, void*);
int hsa_amd_memory_pool_allocate(hsa_agent_t, size_t, uint32_t, void**);
int hsa_amd_memory_pool_free(void*);
int hsa_amd_pointer_info(const void*, PointerInfo*, void* (*)(size_t), uint32_t*, hsa_agent_t**);
int hsa_amd_portable_export_dmabuf(const void*, size_t, int*, uint64_t*);
int hsa_amd_portable_close_dmabuf(int);
}

namespace {

constexpr int kInvalidValue = 1, kNotInitialized = 3, kInvalidContext = 201, kNotSupported = 801;

// The order matters: what is asked before cuInit.
TEST(CudaDriver, IsInitializedFirst) {
  int count = 0;
  void* context = nullptr;
  EXPECT_EQ(cuDeviceGetCount(&count), kNotInitialized);
  EXPECT_EQ(cuCtxCreate_v2(&context, 0, 0), kNotInitialized);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(&memory, 1), kNotInitialized);
  EXPECT_EQ(cuInit(1), kInvalidValue);
  EXPECT_EQ(cuInit(0), 0);
  EXPECT_EQ(cuMemAlloc_v2(&memory, 1), kInvalidContext);
}

class Driver : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuInit(0), 0);
    ASSERT_EQ(cuCtxCreate_v2(&context_, 8, 1), 0);
    ASSERT_EQ(cuMemAlloc_v2(&memory_, 10'000), 0);
  }
  void TearDown() override {
    EXPECT_EQ(cuMemFree_v2(memory_), 0);
    EXPECT_EQ(cuCtxDestroy_v2(context_), 0);
  }
  void* context_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(Driver, SaysWhatItIs) {
  int count = 0, device = -1, supported = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), 0);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cuDeviceGet(&device, 1), 0);
  EXPECT_EQ(cuDeviceGet(&device, 2), 101);
  char name[64], bus[32];
  EXPECT_EQ(cuDeviceGetName(name, sizeof(name), 1), 0);
  EXPECT_NE(strstr(name, "memory only"), nullptr);
  EXPECT_EQ(cuDeviceGetPCIBusId(bus, sizeof(bus), 1), 0);
  EXPECT_EQ(cuDeviceGetByPCIBusId(&device, bus), 0);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cuDeviceGetAttribute(&supported, 124, 0), 0);
  EXPECT_EQ(supported, 1) << "dma-buf";
  EXPECT_EQ(cuDeviceGetAttribute(&supported, 102, 0), 0);
  EXPECT_EQ(supported, 0) << "virtual memory management";
}

TEST_F(Driver, ContextsAreTheThreads) {
  void* current = nullptr;
  int device = -1;
  EXPECT_EQ(cuCtxGetCurrent(&current), 0);
  EXPECT_EQ(current, context_);
  EXPECT_EQ(cuCtxGetDevice(&device), 0);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cuCtxSetCurrent(nullptr), 0);
  EXPECT_EQ(cuCtxGetDevice(&device), kInvalidContext);
  EXPECT_EQ(cuCtxSetCurrent(context_), 0);
}

TEST_F(Driver, PointersHaveAttributes) {
  unsigned int type = 0, on = 1;
  int device = -1;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  bool capable = false;
  EXPECT_EQ(cuPointerGetAttribute(&type, 2, memory_ + 9'999), 0);
  EXPECT_EQ(type, 2u) << "device";
  EXPECT_EQ(cuPointerGetAttribute(&device, 9, memory_), 0);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cuPointerGetAttribute(&capable, 15, memory_), 0);
  EXPECT_TRUE(capable);
  EXPECT_EQ(cuPointerGetAttribute(&base, 11, memory_ + 5), 0);
  EXPECT_EQ(base, memory_);
  EXPECT_EQ(cuPointerGetAttribute(&bytes, 12, memory_ + 5), 0);
  EXPECT_EQ(bytes, 10'000u);
  EXPECT_EQ(cuPointerGetAttribute(&base, 4, memory_), kInvalidValue) << "no host's address";
  EXPECT_EQ(cuPointerGetAttribute(&type, 2, reinterpret_cast<CUdeviceptr>(&type)), kInvalidValue);
  EXPECT_EQ(cuPointerSetAttribute(&on, 6, memory_), 0);
  bool sync = false;
  EXPECT_EQ(cuPointerGetAttribute(&sync, 6, memory_), 0);
  EXPECT_TRUE(sync);
  EXPECT_EQ(cuMemGetAddressRange_v2(&base, &bytes, memory_ + 17), 0);
  EXPECT_EQ(base, memory_);
}

TEST_F(Driver, SeveralAttributesAreNullOfOtherMemory) {
  const int attributes[] = {2, 8, 3};
  unsigned int type = 77;
  bool managed = true;
  void* address = this;
  void* data[] = {&type, &managed, &address};
  EXPECT_EQ(cuPointerGetAttributes(3, attributes, data, reinterpret_cast<CUdeviceptr>(&type)), 0);
  EXPECT_EQ(type, 0u);
  EXPECT_FALSE(managed);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(cuPointerGetAttributes(3, attributes, data, memory_ + 1), 0);
  EXPECT_EQ(type, 2u);
  EXPECT_EQ(reinterpret_cast<CUdeviceptr>(address), memory_ + 1);
}

TEST_F(Driver, ManagedMemoryIsTouchedAndNotExported) {
  CUdeviceptr managed = 0;
  ASSERT_EQ(cuMemAllocManaged(&managed, 4096, 1), 0);
  *reinterpret_cast<int*>(managed) = 7;
  int seen = 0, fd = -1;
  EXPECT_EQ(cuMemcpyDtoH_v2(&seen, managed, 4), 0);
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(cuMemGetHandleForAddressRange(&fd, managed, 4096, 1, 0), kInvalidValue);
  EXPECT_EQ(cuMemFree_v2(managed), 0);
}

TEST_F(Driver, ExportsADmaBuf) {
  int fd = -1;
  uint32_t seen = 0;
  EXPECT_EQ(cuMemsetD32_v2(memory_, 0xabcd, 100), 0);
  ASSERT_EQ(cuMemGetHandleForAddressRange(&fd, memory_, 8192, 1, 0), 0);
  EXPECT_EQ(pread(fd, &seen, 4, 396), 4);
  EXPECT_EQ(seen, 0xabcdu);
  close(fd);
  EXPECT_EQ(cuMemGetHandleForAddressRange(&fd, memory_, 8192, 2, 0), kNotSupported);
}

TEST_F(Driver, NothingComputes) {
  EXPECT_EQ(cuLaunchKernel(), kNotSupported);
  EXPECT_EQ(hipModuleLaunchKernel(), kNotSupported);
  const char* name = nullptr;
  EXPECT_EQ(cuGetErrorName(kNotSupported, &name), 0);
  EXPECT_STREQ(name, "CUDA_ERROR_NOT_SUPPORTED");
  EXPECT_EQ(cuGetErrorName(12345, &name), kInvalidValue);
}

TEST_F(Driver, EventsAreOver) {
  void* event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, 0), 0);
  EXPECT_EQ(cuEventRecord(event, nullptr), 0);
  EXPECT_EQ(cuEventQuery(event), 0);
  EXPECT_EQ(cuEventDestroy_v2(event), 0);
}

TEST(CudaRuntime, AllocatesAndCopies) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 100), 0);
  const char text[] = "there and back";
  char back[sizeof(text)] = {};
  EXPECT_EQ(cudaMemcpy(memory, text, sizeof(text), 1), 0);
  EXPECT_EQ(cudaMemcpy(back, memory, sizeof(text), 2), 0);
  EXPECT_STREQ(back, text);
  EXPECT_EQ(cudaMemcpy(back, static_cast<char*>(memory) + 90, 11, 2), kInvalidValue);
  EXPECT_EQ(cudaGetLastError(), kInvalidValue);
  EXPECT_EQ(cudaGetLastError(), 0);
  Facts facts{};
  EXPECT_EQ(cudaPointerGetAttributes(&facts, memory), 0);
  EXPECT_EQ(facts.type, 2);
  EXPECT_EQ(facts.device_pointer, memory);
  EXPECT_EQ(facts.host_pointer, nullptr);
  EXPECT_EQ(cudaPointerGetAttributes(&facts, &facts), 0);
  EXPECT_EQ(facts.type, 0) << "unregistered";
  EXPECT_EQ(cudaFree(memory), 0);
  EXPECT_EQ(cudaFree(memory), kInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), 0);
  struct {
    char name[288];
    size_t bytes;
    char rest[1024];
  } properties;
  memset(&properties, 0x55, sizeof(properties));
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), 0);
  EXPECT_EQ(properties.bytes, 64u << 20);
  EXPECT_EQ(properties.rest[0], 0x55);
}

TEST(Hip, AllocatesAndCopies) {
  void *memory = nullptr, *pinned = nullptr;
  ASSERT_EQ(hipMalloc(&memory, 1 << 20), 0);
  ASSERT_EQ(hipHostMalloc(&pinned, 4096, 0), 0);
  memset(pinned, 6, 4096);
  EXPECT_EQ(hipMemcpy(memory, pinned, 4096, 4), 0);
  Facts facts{};
  EXPECT_EQ(hipPointerGetAttributes(&facts, memory), 0);
  EXPECT_EQ(facts.type, 2);
  EXPECT_EQ(hipPointerGetAttributes(&facts, pinned), 0);
  EXPECT_EQ(facts.type, 1);
  EXPECT_EQ(facts.host_pointer, pinned);
  int fd = -1;
  uint64_t offset = 0;
  ASSERT_EQ(hsa_amd_portable_export_dmabuf(static_cast<char*>(memory) + 8, 100, &fd, &offset), 0);
  EXPECT_EQ(offset, 8u);
  char byte = 0;
  EXPECT_EQ(pread(fd, &byte, 1, 8), 1);
  EXPECT_EQ(byte, 6);
  EXPECT_EQ(hsa_amd_portable_close_dmabuf(fd), 0);
  EXPECT_EQ(hipHostFree(pinned), 0);
  EXPECT_EQ(hipFree(memory), 0);
}

TEST(Hsa, AgentsHavePools) {
  ASSERT_EQ(hsa_init(), 0);
  hsa_agent_t agents[4]{};
  EXPECT_EQ(hsa_iterate_agents(
                [](hsa_agent_t agent, void* data) {
                  auto* all = static_cast<hsa_agent_t*>(data);
                  while (all->handle != 0) ++all;
                  *all = agent;
                  return 0;
                },
                agents),
            0);
  EXPECT_NE(agents[2].handle, 0u);
  EXPECT_EQ(agents[3].handle, 0u) << "the processor and two GPUs";
  int type = -1;
  EXPECT_EQ(hsa_agent_get_info(agents[0], 17, &type), 0);
  EXPECT_EQ(type, 0);
  EXPECT_EQ(hsa_agent_get_info(agents[2], 17, &type), 0);
  EXPECT_EQ(type, 1);
  void* memory = nullptr;
  ASSERT_EQ(hsa_amd_memory_pool_allocate(agents[2], 5000, 0, &memory), 0);
  PointerInfo info{};
  info.size = sizeof(info);
  hsa_agent_t* accessible = nullptr;
  uint32_t count = 0;
  EXPECT_EQ(hsa_amd_pointer_info(memory, &info, malloc, &count, &accessible), 0);
  EXPECT_EQ(info.type, 1);
  EXPECT_EQ(info.agent_base, memory);
  EXPECT_EQ(info.bytes, 5000u);
  EXPECT_EQ(info.owner.handle, agents[2].handle);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(accessible[0].handle, agents[2].handle);
  free(accessible);
  info.size = 8;  // an older program's
  info.bytes = 1;
  EXPECT_EQ(hsa_amd_pointer_info(&info, &info, nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(info.type, 0);
  EXPECT_EQ(info.bytes, 1u);
  EXPECT_EQ(hsa_amd_memory_pool_free(memory), 0);
  EXPECT_NE(hsa_amd_memory_pool_free(memory), 0);
}

}  // namespace
