// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/credit-channel/endpoint.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/apps/verify/content.h"
#include "tests/apps/verify/rng.h"

namespace hostnic::credit {
namespace {

using verify::Failure;

// What a message begins with.
struct Header {
  uint32_t sender = 0, number = 0;
};

constexpr uint64_t kTransfers = 1'000'000;  // the stream of the WRITEs, beside those of senders

// More slots than requests can be outstanding, so that some have to wait for their share.
uint32_t slots_for(const Depths& requester) {
  return requester.read == 0 || requester.write == 0 ? 0 : 2U * (requester.read + requester.write);
}

Channel::Options options_for(const Depths& own, const Depths& peer, const Load& load,
                             const Channel::Trials& trials) {
  return {own, load.message_bytes, slots_for(peer), trials};
}

}  // namespace

Endpoint::Endpoint(const verify::Device& device, const Depths& own, const Depths& peer,
                   const Load& load, uint64_t stream, uint64_t peer_stream,
                   const Channel::Trials& trials)
    : load_(load),
      stream_(stream),
      peer_stream_(peer_stream),
      channel_(device, options_for(own, peer, load, trials), *this),
      sent_(load.senders),
      received_(load.senders),
      slots_(slots_for(own)),
      scratch_(load.message_bytes) {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) free_slots_.push_back(slot);
}

void Endpoint::run(uint32_t sender, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool did;
    {
      const std::lock_guard lock(mutex_);
      did = send_next(sender);
      did |= start_transfer();
      did |= channel_.progress() != 0;
    }
    if (did)
      steps_.fetch_add(1, std::memory_order_relaxed);
    else
      std::this_thread::yield();
  }
}

bool Endpoint::send_next(uint32_t sender) {
  // A few may wait for credit; a program that goes on queueing needs memory without end.
  if (sent_[sender] == load_.messages || channel_.waiting_messages() >= 2U * load_.senders)
    return false;
  const Header header{sender, sent_[sender]++};
  const uint64_t stream = stream_ + sender;
  const auto message = std::span(scratch_).first(sizeof header + length_of(stream, header.number));
  std::memcpy(message.data(), &header, sizeof header);
  fill(stream, header.number, message.subspan(sizeof header));
  channel_.send(message);
  return true;
}

bool Endpoint::start_transfer() {
  if (transfers_begun_ == load_.transfers || free_slots_.empty()) return false;
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot] = {transfers_begun_++, true};
  const uint64_t stream = stream_ + kTransfers;
  const auto bytes = std::span(scratch_).first(length_of(stream, slots_[slot].transfer));
  fill(stream, slots_[slot].transfer, bytes);
  channel_.write(slot, bytes);
  return true;
}

void Endpoint::on_message(std::span<const std::byte> message) {
  Header header;
  if (message.size() < sizeof header) throw Failure{"a message shorter than its header"};
  std::memcpy(&header, message.data(), sizeof header);
  if (header.sender >= load_.senders || header.number != received_[header.sender])
    throw Failure{
        fmt::format("message {} of sender {} comes out of order", header.number, header.sender)};
  ++received_[header.sender];
  compare(peer_stream_ + header.sender, header.number, message.subspan(sizeof header), "message");
  ++messages_verified_;
  if (load_.slow_receiver_us != 0)
    std::this_thread::sleep_for(std::chrono::microseconds(load_.slow_receiver_us));
}

void Endpoint::on_written(uint32_t slot) {
  channel_.read(slot, length_of(stream_ + kTransfers, slots_[slot].transfer));
}

void Endpoint::on_read(uint32_t slot, std::span<const std::byte> bytes) {
  compare(stream_ + kTransfers, slots_[slot].transfer, bytes, "WRITE, read back,");
  ++transfers_verified_;
  free_slots_.push_back(slot);
}

bool Endpoint::complete() const {
  for (uint32_t sender = 0; sender < load_.senders; ++sender)
    if (sent_[sender] != load_.messages || received_[sender] != load_.messages) return false;
  return (slots_.empty() || transfers_verified_ == load_.transfers) && channel_.idle();
}

void Endpoint::check_exposed(const Endpoint& peer) const {
  for (uint32_t slot = 0; slot < peer.slots_.size(); ++slot) {
    if (!peer.slots_[slot].used) continue;
    const uint64_t stream = peer_stream_ + kTransfers, transfer = peer.slots_[slot].transfer;
    compare(stream, transfer, channel_.exposed(slot).first(length_of(stream, transfer)),
            "WRITE, in memory,");
  }
}

uint32_t Endpoint::length_of(uint64_t stream, uint64_t number) const {
  const auto room = static_cast<uint32_t>(load_.message_bytes - sizeof(Header));
  return 1 + static_cast<uint32_t>(verify::mix64(stream * 31 + number) % room);
}

void Endpoint::fill(uint64_t stream, uint64_t number, std::span<std::byte> bytes) const {
  verify::generate({stream, number * load_.message_bytes, 0}, bytes);
}

void Endpoint::compare(uint64_t stream, uint64_t number, std::span<const std::byte> bytes,
                       const char* what) const {
  if (bytes.size() != length_of(stream, number))
    throw Failure{fmt::format("{} {} has {} bytes instead of {}", what, number, bytes.size(),
                              length_of(stream, number))};
  if (const auto at = verify::first_difference(bytes, {stream, number * load_.message_bytes, 0}))
    throw Failure{fmt::format("{} {}: wrong byte at {} of {}", what, number, *at, bytes.size())};
}

}  // namespace hostnic::credit
