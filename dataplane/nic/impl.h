// The NIC's inside, shared by the .cc files of this folder. One file per event: receive.cc (a
// packet arrives), request.cc (a request is checked, placed, executed), receive_queue.cc (posted
// receives are found, bound, completed), response.cc (READ answers and ACKs arrive), placement.cc
// (bytes into memory), transmit.cc (descriptors become packets), single_packet_sends.cc,
// read_requests.cc, segment_trains.cc and bundles.cc (several packets at a time), acknowledge.cc,
// bundled_packets.cc (packets of many queue pairs in one buffer), time_wait.cc (ACKs of ended
// connections), read_service.cc, unreliable.cc (UC and UD, both directions), multicast.cc (UD to
// groups), commands.cc, reports.cc (towards the driver), output.cc (towards the port),
// neighbours.cc (ARP), impairments.cc, windows.cc (memory windows), management.cc (QP 1),
// serving.cc (which clients are looked at).
#pragma once

#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/nic/bundle.h"
#include "dataplane/nic/client_state.h"
#include "dataplane/nic/descriptor_queue.h"
#include "dataplane/nic/external_payload.h"
#include "dataplane/nic/multicast_groups.h"
#include "dataplane/nic/neighbours.h"
#include "dataplane/nic/nic.h"
#include "dataplane/nic/packet_release.h"
#include "dataplane/nic/qp_context.h"
#include "dataplane/nic/qp_status_update.h"
#include "dataplane/nic/region_access.h"
#include "dataplane/nic/time_wait.h"
#include "dataplane/nic/window_table.h"
#include "protocol/cm/mad.h"
#include "protocol/impair/stage.h"
#include "protocol/wire/arp.h"
#include "protocol/wire/icrc.h"
#include "protocol/wire/segment_train.h"

namespace hostnic {

inline constexpr uint32_t kBurst = 32;
inline constexpr uint32_t kRxBudget = 256;  // packets received per turn
inline constexpr uint32_t kTxBudget = 32;   // packets per client, ring and turn: few, so that what
                                            // they need is still in the cache when they arrive
inline constexpr uint32_t kAdvanceBudget =
    64;                                    // PSNs per QP and turn that a window may pass (rule 8)
inline constexpr uint32_t kAckEvery = 64;  // packets accepted without an ACK at most (rule 20)
inline constexpr uint32_t kReadJobs = 1024;
// Of an output queue, for ACKs and atomics alone: data that a slow port holds up never starves
// them.
inline constexpr uint32_t kAckReserve = 16;
inline constexpr uint32_t kOutputRoom =
    2 * kBurst - kAckReserve;  // data packets that may wait in one
inline constexpr uint32_t kLoopbackCapacity = 512;
inline constexpr uint32_t kMaxClients = 4096;
inline constexpr uint32_t kEarlyWriteCapacity = 65536;
inline constexpr uint32_t kReorderBlocks = 1024;
inline constexpr uint32_t kMaxPeers = 64;
inline constexpr int kLoopbackPeer = kMaxPeers;  // in mbuf::port and QpContext::peer

inline std::span<const std::byte> first_segment_of(rte_mbuf* packet) {
  return {rte_pktmbuf_mtod(packet, const std::byte*), packet->data_len};
}
// The headers of a received packet.
wire::ParseError parse_packet(rte_mbuf* packet, wire::Packet& headers);
// Of one that waits in a slot: they were valid, or it would not be there.
wire::Packet valid_headers(rte_mbuf* packet);
// Payload of a received packet: contiguous, behind the headers or external.
inline std::span<const std::byte> payload_of(rte_mbuf* packet, const wire::Packet& headers) {
  const ExternalPayload* external = external_payload(packet);
  return {external != nullptr
              ? external->bytes
              : rte_pktmbuf_mtod_offset(packet, const std::byte*, headers.header_bytes),
          headers.payload_bytes};
}
// A copy in one segment from the pool of copies, still without or with ICRC as the original. Null:
// no buffer.
rte_mbuf* copy_packet(rte_mbuf* packet, rte_mempool* pool);
// The same into an empty buffer. False: it does not fit.
bool copy_packet_into(rte_mbuf* packet, rte_mbuf* copy);
// Gives a packet of one segment without ICRC its pad and ICRC.
void add_icrc_in_place(rte_mbuf* packet);
bool icrc_valid(rte_mbuf* packet, const wire::Packet& headers);
// Appends pad and ICRC behind the payload of a frame whose headers were built for them.
void finish_icrc(std::byte* frame, const wire::Packet& headers);

// What became of a request that was looked at.
struct RequestResult {
  enum Kind : uint8_t {
    kDone,   // placed, or executed
    kRetry,  // a resource is missing for now: drop unset, the sender repeats it
    kRnr,    // no receive posted
    kFatal,  // NAK with `code`
  };
  Kind kind = kDone;
  wire::NakCode code = wire::NakCode::kInvalidRequest;
  uint32_t event = 0;                     // QpEvent for our own driver
  std::optional<RecvStatus> recv_status;  // complete receive `sn` with this error
  uint32_t sn = 0;
};

// A range of READ answers, or an atomic's, that still has to leave.
struct ReadJob {
  uint32_t qpn = 0;
  wire::ReadEth request;
  uint32_t total_bytes = 0;
  uint32_t rkey = 0;
  VirtualAddress va = 0;
  uint32_t sent_bytes = 0;
  bool is_atomic = false;
  uint64_t atomic_result = 0;
};

struct OutputQueue {
  std::array<rte_mbuf*, 2 * kBurst> packets;
  uint32_t count = 0;
};

struct Nic::Impl final : public impair::PacketOps {
  Impl(const NicSettings& settings, MrTable& mrs, const MbufPools& pools, Port& port);
  ~Impl();

  NicSettings settings;
  MrTable& mrs;
  MbufPools pools;
  Port& port;
  Counters counters;
  TimeNs now = 0;
  const bool adds_icrc;  // packets leave with ICRC

  std::vector<std::unique_ptr<QpContext>> qps;  // by index
  std::vector<uint8_t> generations;
  std::deque<uint32_t> free_indices;  // oldest first
  std::vector<std::unique_ptr<ClientState>> clients;
  std::vector<ClientState*> served;             // those that are looked at each turn (serving.cc)
  uint32_t next_client = 0, next_unserved = 0;  // in `served`, `clients`: whose turn is next
  Neighbours neighbours;
  TimeWaitTable time_wait;
  WindowTable windows;
  MulticastGroups groups;
  ManagementQueue* management = nullptr;

  EarlyWritePool early_write_pool{kEarlyWriteCapacity};
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<ReorderSlot[], Free> reorder_storage;  // zero pages until used
  std::vector<ReorderSlot*> free_reorder_blocks;
  uint32_t reorder_packets = 0, reorder_limit = 0, reorder_limit_per_space = 0;

  std::vector<QpContext*> ack_list, ack_next, report_list, advance_list, advance_next;
  std::vector<ReadJob> read_jobs = std::vector<ReadJob>(kReadJobs);
  uint32_t read_head = 0, read_count = 0;
  bool answers_first = false;

  std::array<OutputQueue, kMaxPeers + 1> outputs;
  uint32_t output_peers = 1;  // how many of them are in use, loopback excepted
  std::vector<rte_mbuf*> loopback = std::vector<rte_mbuf*>(kLoopbackCapacity);
  uint32_t loopback_head = 0, loopback_count = 0;

  std::unique_ptr<impair::ImpairmentStage> rx_stage, tx_stage;
  PayloadReferences payload_references;
  SpentPackets spent;
  wire::DeltaParser received;
  // Whose the packet in `received` is, if it is RC and dispatch_first() has let it pass: then it
  // would those that follow it in their train. Null between turns, when commands may change that.
  QpContext* train_qp = nullptr;
  void end_train() { train_qp = nullptr; }

  // receive.cc
  uint32_t receive_turn();
  void prefetch_qp(uint32_t qpn, QpPart part) const;  // context_prefetch.h
  void prefetch_status(uint32_t qpn) const;
  static void prefetch_receives(const QpContext& qp, uint32_t sn);
  void prefetch_for(wire::BthView bth) const;
  void receive_impaired(rte_mbuf* packet);  // these two take it
  void receive_packet(rte_mbuf* packet);
  void dispatch_packet(rte_mbuf* packet);
  void dispatch_first(const wire::Packet& p, rte_mbuf* packet);
  void receive_for(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  void dispatch_alone(const wire::Packet& p, rte_mbuf* packet);
  // receive.h
  static bool from_peer_of(const QpContext& qp, Ipv4Address src_ip, uint16_t src_port, bool answer);
  static bool accepts_from(const QpContext& qp, Ipv4Address src_ip, uint16_t src_port, bool answer);
  static bool has_too_many_reads(const QpContext& qp, const wire::Packet& p);
  static void note_read_answered(QpContext& qp, uint32_t read_number);
  static bool fits_path_mtu(const QpContext& qp, const wire::Packet& p);
  bool take_in_order(QpContext& qp, wire::Packet& p, std::span<const std::byte> payload,
                     uint32_t packets);
  bool begin_train(rte_mbuf* packet, bool has_icrc);
  bool passes_icrc(rte_mbuf* packet, const wire::Packet& headers);
  QpContext* find_qp(uint32_t qpn) const {
    const uint32_t index = qpn & 0xffff;
    if (index >= qps.size()) return nullptr;
    QpContext* qp = qps[index].get();
    return qp != nullptr && qp->qpn == qpn ? qp : nullptr;
  }
  void receive_arp(std::span<const std::byte> frame);

  // request.cc
  void receive_request(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  bool execute_expected(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  void note_message(QpContext& qp, const wire::Packet& p);
  void receive_old_request(QpContext& qp, const wire::Packet& p);
  bool accept_ahead(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  bool needs_reorder_buffer(const wire::Packet& p) const;
  bool enter_reorder_buffer(ReceiveSpace& space, const wire::Packet& p, rte_mbuf* packet);
  RequestResult execute(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload,
                        bool ahead);
  RequestResult execute_write(QpContext& qp, const wire::Packet& p,
                              std::span<const std::byte> payload, bool ahead);
  RequestResult execute_send(QpContext& qp, const wire::Packet& p,
                             std::span<const std::byte> payload, bool ahead);
  RequestResult execute_read(QpContext& qp, const wire::Packet& p);
  RequestResult execute_atomic(QpContext& qp, const wire::Packet& p);
  bool reads_unanswered(const QpContext& qp) const;
  void refuse(QpContext& qp, const wire::Packet& p, const RequestResult& outcome);
  void refuse_old_read(QpContext& qp, const wire::Packet& p, const RequestResult& outcome);
  void advance_requests(QpContext& qp);
  void advance_later(QpContext& qp);
  bool take_reorder_slot(ReceiveSpace& space, Psn psn, ReorderSlot slot);
  ReorderSlot release_reorder_slot(ReceiveSpace& space, Psn psn);
  void drop_reorder_slots(ReceiveSpace& space);
  void owe_ack(QpContext& qp, const wire::Packet& p, bool duplicate);
  void owe_plain_ack(QpContext& qp);
  uint32_t advance_windows();
  void ask_for_descriptors();
  void look_at_unserved();  // serving.cc, and the four that follow
  void serve(ClientState& client);
  void forget_idle();
  static bool has_work(const ClientState& client);
  static bool has_published(const ClientState& client);

  // receive_queue.cc
  // Whether receive `sn` has been posted; one of a shared queue is bound then. `ahead`: of the
  // front.
  RequestResult check_receive(QpContext& qp, uint32_t sn, bool ahead);
  bool bind_receives(QpContext& qp, uint32_t sn, bool ahead);
  // A receive work request, copied out of shared memory.
  struct PostedReceive {
    std::array<Sge, kMaxSge> sges;
    uint32_t sge_count = 0;
    uint64_t capacity_bytes = 0;
    std::span<const Sge> list() const { return {sges.data(), sge_count}; }
  };
  // False: the slot holds nothing that a driver would have written.
  static bool load_receive(const QpContext& qp, uint32_t sn, PostedReceive& receive);
  static void write_receive(QpContext& qp, uint32_t sn, const ReceiveEnd& end, RecvStatus status);
  void publish_receive(QpContext& qp, uint32_t sn);
  void complete_receive(QpContext& qp, uint32_t sn, const ReceiveEnd& end, RecvStatus status);

  // response.cc
  void receive_ack(QpContext& qp, const wire::Sack& sack, wire::Aeth aeth,
                   const std::byte* sack_words);
  void receive_response(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  enum class ResponseMiss : uint8_t {
    kNone,
    kNobodys,  // the READ is no longer, or not yet, in its slot
    kNotNow,
  };
  LocalError place_response(QpContext& qp, const wire::Packet& p, uint32_t packets,
                            std::span<const std::byte> payload, bool ahead, ResponseMiss& miss);
  void merge_sack_word(QpContext& qp, std::array<uint64_t, kBitmapWords>& sack, Psn first,
                       uint64_t bits);
  void note_echo(QpContext& qp, const wire::Sack& sack);
  void fail_response(QpContext& qp, const wire::Packet& p, LocalError error);
  void advance_responses(QpContext& qp);
  void report_responses(QpContext& qp);
  void publish_responses(QpContext& qp);
  void begin_pull(QpContext& qp, const SendDescriptor& d);
  void start_epoch(QpContext& qp, uint8_t epoch, Psn keep_until);

  // unreliable.cc
  bool opcode_fits_service(const QpContext& qp, const wire::Packet& p) const;
  void receive_unreliable(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  bool follow_message(QpContext& qp, const wire::Packet& p);
  void lose_message(QpContext& qp);
  bool place_unreliable(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  bool place_uc_send(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  bool place_uc_write(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  void receive_datagram(QpContext& qp, const wire::Packet& p, rte_mbuf* packet);
  void fail_receive(QpContext& qp, uint32_t sn, RecvStatus status);
  bool may_send_unreliable(const QpContext& qp, const SendDescriptor& d) const;
  void set_unreliable_opcode(const QpContext& qp, const SendDescriptor& d, wire::Packet& p) const;
  bool prepare_datagram(QpContext& qp, const SendDescriptor& d);
  void settle_unreliable(QpContext& qp, Psn next);
  void restart_unreliable(QpContext& qp, Psn next);

  // multicast.cc, management.cc
  int attach_group(ClientState& client, const GroupCommand& command);
  int detach_group(ClientState& client, const GroupCommand& command);
  void receive_from_group(std::span<QpContext* const> members, const wire::Packet& p,
                          rte_mbuf* packet);
  bool send_to_group(QpContext& qp, SendProgress& progress, const wire::Packet& p, bool& blocked);
  bool receive_management(const wire::Packet& p, rte_mbuf* packet);
  void send_management(Ipv4Address to, uint8_t traffic_class,
                       std::span<const std::byte, cm::kMadBytes> bytes);

  // placement.cc
  // Memory that a peer names, by the key of a region or of a window: the region, if it may have it,
  // and where in it.
  struct RemoteRange {
    MemoryRegionEntry* region = nullptr;
    uint64_t iova = 0;
  };
  RemoteRange remote_range(QpContext& qp, uint32_t key, uint64_t va, uint64_t length_bytes,
                           uint32_t access);
  MemoryRegionEntry* local_region(QpContext& qp, uint32_t pd, uint32_t key, uint64_t addr,
                                  uint64_t length_bytes, uint32_t access);
  struct PlaceRequest {
    ReceiveSpace& space;
    Psn psn;
    bool ahead;            // remember the range
    bool tail;             // last bytes of a message: the final word is stored last
    bool watched = false;  // the bytes may lie in memory that a program writes to
  };
  enum class PlaceResult : uint8_t { kDone, kNotNow, kMemoryGone };
  static void put_bytes(const PlaceRequest& request, std::byte* to,
                        std::span<const std::byte> bytes, bool tail);
  bool place_at_once(const PlaceRequest& request, MemoryRegionEntry& region, uint64_t iova,
                     std::span<const std::byte> bytes);
  bool place_write(QpContext& qp, const wire::Packet& p, std::span<const std::byte> payload);
  PlaceResult place(const PlaceRequest& request, MemoryRegionEntry& region, uint64_t iova,
                    std::span<const std::byte> bytes);
  PlaceResult scatter(QpContext& qp, uint32_t pd, const PlaceRequest& request,
                      std::span<const Sge> sges, uint64_t offset, std::span<const std::byte> bytes,
                      LocalError& error);
  MemoryAccess fetch(MemoryRegionEntry& region, uint64_t iova, std::byte* out,
                     uint32_t length_bytes);

  // windows.cc
  int create_window(ClientState& client, const CreateWindowCommand& command, uint32_t& key);
  int destroy_window(ClientState& client, const DestroyWindowCommand& command);
  int bind_window(ClientState& client, const BindWindowCommand& command);
  int invalidate_window(ClientState& client, const InvalidateWindowCommand& command);
  void unbind(MemoryWindow& window);
  MemoryWindow* invalidatable(const QpContext& qp, uint32_t key);
  RemoteRange window_range(QpContext& qp, uint32_t key, uint64_t va, uint64_t length_bytes,
                           uint32_t access);
  void unbind_windows_of(const QpContext& qp);
  void drop_windows_of(uint32_t client_id);

  // acknowledge.cc
  void send_acks();
  void send_ack(QpContext& qp, AckBundleBuilder& bundle);
  void fill_sack(QpContext& qp, wire::AckKind kind, wire::Sack& sack);
  bool add_ack(QpContext& qp, AckBundleBuilder& bundle);
  Psn ack_base(const QpContext& qp) const;
  wire::Packet make_ack(uint32_t dest_qpn, uint32_t src_qpn, Psn base, uint32_t msn) const;
  uint32_t receives_posted(const QpContext& qp) const;
  void watch_credit(QpContext& qp, uint32_t advertised);
  void credit_posted(QpContext& qp);

  // time_wait.cc
  void enter_time_wait(QpContext& qp);
  bool answer_in_time_wait(const wire::Packet& p);

  // read_service.cc
  bool queue_read(QpContext& qp, const wire::Packet& p);
  void answer_atomic(QpContext& qp, const wire::ReadEth& request, uint64_t result);
  uint32_t serve_reads();
  wire::Packet next_answer(const QpContext& qp, const ReadJob& job) const;
  uint32_t serve_read(QpContext& qp, ReadJob& job, uint32_t budget);
  rte_mbuf* build_answer(QpContext& qp, const wire::Packet& p, const RemoteRange& range,
                         bool& lost);
  uint32_t serve_read_train(QpContext& qp, ReadJob& job, uint32_t budget);
  bool send_atomic_response(QpContext& qp, const wire::ReadEth& request, uint64_t result);

  // transmit.cc
  uint32_t transmit_turn();
  uint32_t transmit_client(ClientState& client);
  // One of a client's two rings, and what has become of it.
  struct SendSource {
    RingEnd& ring;
    DescriptorQueue& queue;
    SendProgress& progress;
  };
  uint32_t transmit_ring(ClientState& client, const SendSource& source, uint32_t budget);
  bool has_elements(ClientState& client, const SendSource& source, uint32_t elements);
  bool take_descriptor(ClientState& client, const SendSource& source);
  bool start_descriptor(SendProgress& progress, QpContext& qp);
  wire::Packet next_packet(const QpContext& qp, const SendProgress& progress) const;
  static void set_request(const SendDescriptor& d, wire::Packet& p);
  void set_data(const QpContext& qp, const SendDescriptor& d, uint32_t sent_bytes,
                wire::Packet& p) const;
  static void pass_payload(SendProgress& progress, uint32_t bytes);
  bool send_one_packet(QpContext& qp, SendProgress& progress, bool& blocked);
  uint32_t send_several(QpContext& qp, SendProgress& progress, uint32_t budget);
  uint32_t send_train(QpContext& qp, SendProgress& progress, uint32_t budget);
  static bool note_progress(SendProgress& progress, uint32_t packets, uint32_t bytes);
  bool may_attach_payload(const QpContext& qp) const;
  rte_mbuf* build_packet(QpContext& qp, SendProgress& progress, const wire::Packet& p,
                         bool& blocked);
  rte_mbuf* build_sent_small(QpContext& qp, const SendDescriptor& d, const wire::Packet& p,
                             std::span<const std::byte> payload, rte_mempool* pool);
  rte_mbuf* build_data_packet(QpContext& qp, SendProgress& progress, const wire::Packet& p);
  rte_mbuf* build_gathered(QpContext& qp, SendProgress& progress, const wire::Packet& p,
                           uint32_t part);
  static bool is_acknowledged(const QpContext& qp, Psn psn);
  void fail_send(QpContext& qp, Psn psn, LocalError error);
  // The last of several packets of one queue pair.
  struct Transmitted {
    Psn psn;
    uint8_t attempt = 0;
    bool ack_request = false;
  };
  void note_transmitted(QpContext& qp, Transmitted last, uint32_t packets, bool retransmit);
  static void forget_stamps(QpContext& qp, Transmitted again);
  void note_transmitted(QpContext& qp, const wire::Packet& last, uint32_t packets,
                        bool retransmit) {
    note_transmitted(qp, Transmitted{last.psn, last.attempt, last.ack_request}, packets,
                     retransmit);
  }

  // segment_trains.cc
  struct MappedPayload {
    const std::byte* bytes;
    MemoryRegionEntry* region;
    PacketCount* packets;  // which counts it
  };
  uint32_t train_room(int peer) const;
  bool emit_train(QpContext& qp, const wire::FlowTemplate& flow, wire::Packet& p,
                  const MappedPayload& payload, uint32_t count);
  rte_mbuf* build_external(const wire::FlowTemplate& flow, const wire::Packet& p,
                           const MappedPayload& payload);

  // single_packet_sends.cc
  uint32_t send_single_packets(ClientState& client, DescriptorQueue& queue, uint32_t budget);
  struct SinglePacketTurn;
  struct SinglePacketRun;
  uint32_t send_single_packet_run(ClientState& client, DescriptorQueue& queue, uint32_t budget,
                                  SinglePacketTurn& turn);
  bool add_bundled_request(SinglePacketRun& run, RequestBundleBuilder& bundle,
                           const SendDescriptor& d, const MappedPayload& payload);
  bool send_single_packet(SinglePacketRun& run, SinglePacketTurn& turn, const SendDescriptor& d,
                          const MappedPayload& payload);
  const std::byte* single_packet_payload(QpContext& qp, const SendDescriptor& d,
                                         const DescriptorQueue& queue, MemoryRegionEntry*& region);

  // read_requests.cc
  uint32_t send_read_requests(ClientState& client, DescriptorQueue& queue, uint32_t budget);
  bool add_read_request(QpContext& qp, ReadBundleBuilder& bundle, const SendDescriptor& d);

  // bundles.cc
  bool sends_bundles(int peer) const;
  const char* why_no_bundles() const;
  bool emit_bundle(QpContext& qp, const wire::FlowTemplate& flow, const wire::Packet& first,
                   uint32_t packets_behind, const BundleEnd& end, const MappedPayload& payload);
  uint32_t send_bundle(QpContext& qp, SendProgress& progress, uint32_t budget);
  uint32_t serve_read_bundle(QpContext& qp, ReadJob& job, uint32_t budget);
  bool receive_bundle(rte_mbuf* bundle);
  bool receive_acks(rte_mbuf* bundle);  // receive.cc
  template <class Bundled>
  bool receive_requests(rte_mbuf* bundle, Bundled& bundled);
  bool receive_bundled_request(wire::Packet& p, std::span<const std::byte> payload);
  bool receive_request_bundle(QpContext& qp, const wire::Packet& first,
                              const ExternalPayload& payload);
  bool receive_response_bundle(QpContext& qp, const wire::Packet& first,
                               const ExternalPayload& payload);
  void receive_apart(rte_mbuf* bundle);

  // output.cc
  bool has_room(int peer) const;
  bool has_room_for_ack(int peer) const;
  void emit(rte_mbuf* packet, int peer, const wire::Packet& p);
  void enqueue(rte_mbuf* packet, int peer);
  template <class Builder>
  void emit_open(Builder& bundle);
  void flush(int peer);
  void flush_all();
  rte_mbuf* build_small(const wire::FlowTemplate& flow, const wire::Packet& p,
                        std::span<const uint64_t> sack_words, std::span<const std::byte> payload,
                        rte_mempool* pool);
  void finish_linear(rte_mbuf* packet, const wire::Packet& p, size_t header_bytes);
  bool prepare_flows(QpContext& qp);
  bool may_send(const ClientState& client, QpContext& qp);
  void make_flows(QpContext& qp, const wire::MacAddress& destination);
  void send_arp(const wire::Arp& arp);
  uint32_t ask_neighbours();

  // commands.cc
  uint32_t command_turn();
  void handle_command(ClientState& client, const Command& command);
  void defer_answer(ClientState& client, const CommandResponse& response, const QpPackets& packets);
  uint32_t answer_deferred(ClientState& client);
  int create_qp(ClientState& client, const CreateQpCommand& command, uint32_t& qpn);
  int modify_qp(QpContext& qp, const ModifyQpCommand& command);
  QpContext* own_qp(ClientState& client, uint32_t qpn) const;
  void destroy_qp(ClientState& client, QpContext& qp);
  void reset_request_status(QpContext& qp);
  int connect_qp(QpContext& qp, const ModifyQpCommand& command);
  Ipv4Address next_hop(Ipv4Address destination) const;
  wire::MacAddress wire_mac(const QpContext& qp) const;
  static wire::MacAddress wire_mac(Ipv4Address ip);
  void quiesce_qp(QpContext& qp);  // purges everything of it from the NIC's queues
  void drop_client(ClientState& client, DropReason reason);

  // reports.cc
  void report(QpContext& qp);
  void publish_event(QpContext& qp, uint32_t event);
  void send_reports();
  void wake_drivers(bool idle);
  static ClientState& state_of(ClientChannel& channel);

  // impairments.cc
  void* clone(void* packet) override;
  void* detach(void* packet) override;
  void corrupt(void* packet, uint32_t byte_selector, uint8_t xor_mask) override;
  void release(void* packet) override;
  impair::PacketInfo impairment_info(rte_mbuf* packet) const;  // received
  impair::PacketInfo impairment_info(rte_mbuf* packet,
                                     const wire::Packet& p) const;  // about to leave
  void run_rx_stage();
  void run_tx_stage();
};

}  // namespace hostnic
