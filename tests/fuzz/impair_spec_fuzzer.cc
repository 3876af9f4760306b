// SPDX-License-Identifier: BSD-3-Clause
// Any text is either a spec that prints, parses again to itself and runs without losing a packet,
// or an error that points into the text. The same goes for the words of a switch.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string_view>

#include "protocol/impair/spec.h"
#include "protocol/impair/stage.h"
#include "protocol/impair/switch_model.h"

namespace {

using namespace hostnic;
using namespace hostnic::impair;

void require(bool condition) {
  if (!condition) std::abort();
}

// Packets are numbers in disguise; `inside` holds those that have not left the stage.
class CountingOps final : public PacketOps {
 public:
  void* make() {
    void* packet = reinterpret_cast<void*>(++last_);
    inside.insert(packet);
    return packet;
  }
  void* clone(void*) override { return make(); }
  void corrupt(void* packet, uint32_t, uint8_t mask) override {
    require(mask != 0 && inside.contains(packet));
  }
  bool mark(void* packet) override {
    require(inside.contains(packet));
    return true;
  }
  void release(void* packet) override { require(inside.erase(packet) == 1); }

  std::set<void*> inside;

 private:
  uintptr_t last_ = 0;
};

void run(const Spec& spec) {
  constexpr size_t kCapacity = 32;
  CountingOps ops;
  {
    ImpairmentStage stage(spec, 1, ops, kCapacity);
    TimeNs now = 0;
    for (uint32_t i = 0; i < 100; ++i) {
      PacketInfo info;
      info.psn = Psn(i);
      info.kind = static_cast<PacketKind>(i % 8);
      info.last_of_message = i % 3 == 0;
      info.bytes = 64 + i * 40;
      stage.push(ops.make(), info, now);
      require(stage.queued() <= kCapacity);
      void* out[4];
      const size_t count = stage.pop(out, now);
      for (size_t k = 0; k < count; ++k) ops.release(out[k]);
      require(ops.inside.size() == stage.queued());
      now += i * 1000;
    }
  }
  require(ops.inside.empty());
}

class SwitchOps final : public SwitchModel::Ops {
 public:
  explicit SwitchOps(CountingOps& ops) : ops_(ops) {}
  bool mark(void* packet) override { return ops_.mark(packet); }
  uint32_t trim(void* packet) override {
    require(ops_.inside.contains(packet));
    return reinterpret_cast<uintptr_t>(packet) % 3 == 0 ? 0 : 60;
  }
  void release(void* packet) override { ops_.release(packet); }

 private:
  CountingOps& ops_;
};

void run(const SwitchSpec& spec) {
  CountingOps ops;
  SwitchOps switch_ops(ops);
  {
    SwitchModel model(spec, switch_ops);
    TimeNs now = 0;
    for (uint32_t i = 0; i < 100; ++i) {
      model.arrive(ops.make(), 64 + i * 40, i % (kMaxPaths + 2), now);
      void* out[4];
      const size_t count = model.take(out, now);
      for (size_t k = 0; k < count; ++k) ops.release(out[k]);
      require(ops.inside.size() == model.waiting());
      require(model.waiting() == 0 || model.next_deadline_ns() != kForever);
      now += i * 1000;
    }
  }
  require(ops.inside.empty());
}

void check_error(const SpecError& error, size_t size) {
  require(error.column >= 1 && error.column <= size + 1);
  require(!error.found.empty() && !error.expected.empty());
  require(!error.message().empty());
}

void try_switch(std::string_view text) {
  const auto spec = parse_switch(text);
  if (!spec) return check_error(spec.error(), text.size());
  const auto again = parse_switch(to_string(*spec));
  require(again.has_value() && *again == *spec);
  if (spec->is_there()) run(*spec);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_switch(text);
  const auto spec = parse_spec(text);
  if (!spec) {
    check_error(spec.error(), size);
    return 0;
  }
  const auto again = parse_spec(to_string(*spec));
  require(again.has_value() && *again == *spec);
  run(*spec);
  return 0;
}
