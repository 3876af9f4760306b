// SPDX-License-Identifier: BSD-3-Clause
// Deliberately broken transports: the tests of the tests. Each fault is one wrong line at the exact
// place in the real code. None of them is in the product: the *.toml files beside this say which
// text of which file becomes which, and plant.py makes a copy of the sources in which all of them
// are in place, as `broken(Fault::...)`. A program of such a build chooses one of them when it
// starts (HOSTNIC_TEST_FAULT=NAME; "list" prints them all), and tests/tools/run_faults.py requires
// that the test suite notices.
#pragma once

#include <cstdint>
#include <type_traits>

namespace hostnic {

// The list of faults, as X(name, what is wrong). The number in the text is that of the rule in
// docs/transport.md that the fault breaks.
#define HOSTNIC_FAULTS(X)                                                                      \
  /* Numbers and windows */                                                                    \
  X(psn_wraps_wrongly, "distances between PSNs ignore the wrap at 2^24")                       \
  X(bitmap_bit_ignored, "5: one bit in 64 of the receive bitmap reads as not received")        \
  X(sack_bit_ignored, "7: the sender overlooks one bit in 64 of an ACK's bitmap")              \
  X(advance_too_far, "8: the window advances over a hole of one PSN")                          \
  X(receive_window_ignored, "5: a PSN beyond the window is taken for one inside it")           \
  X(peer_window_ignored, "27: more is in flight than the peer accepts")                        \
  X(ack_beyond_base, "7: an ACK's base lies one PSN beyond what was received")                 \
  X(stale_ack_taken, "22: an ACK that is older than what is known counts")                     \
  /* Placing */                                                                                \
  X(icrc_not_checked, "a corrupted packet is placed")                                          \
  X(bit_set_before_place, "23: the bit is set before the packet has been checked and placed")  \
  X(late_bytes_overwrite, "9: late packets overwrite newer data")                              \
  X(early_write_forgotten, "9: an early write is forgotten one PSN too early")                 \
  X(tail_not_buffered, "10: the last packet of a WRITE does not wait for those before it")     \
  X(path_mtu_not_checked, "packets of a message may have another length than the path MTU")    \
  X(answer_length_not_checked, "17: READ answers may have another length than they stand for") \
  X(answer_tail_not_buffered, "10: the last packet of a READ answer does not wait")            \
  X(tail_cut_short, "the last byte of a partial last packet is not written")                   \
  X(packet_count_wrong, "whole multiples of the MTU count as one packet more")                 \
  X(errors_raised_ahead, "6: an error ahead of the front is fatal at once")                    \
  /* Keys and connections */                                                                   \
  X(rkey_not_checked, "16: of a key only the index counts")                                    \
  X(rights_not_checked, "16: access rights of regions don't count")                            \
  X(domain_not_checked, "16: protection domains don't count")                                  \
  X(bounds_not_checked, "16: a range may leave its region")                                    \
  X(dead_connection_heard, "packets of an earlier connection of the same QPs are taken")       \
  X(any_queue_pair_heard, "packets that name another queue pair as their source are taken")    \
  X(time_wait_forgotten, "a peer whose last ACK was lost hears nothing of an ended one")       \
  /* Receives, credit, RNR */                                                                  \
  X(receive_completes_early, "8: a receive completes when its last packet arrives")            \
  X(credit_forgotten, "14: a starved peer is not told of new receives")                        \
  X(credit_lowered, "14: an older, lower credit replaces a newer one")                         \
  X(credit_one_too_many, "14: one more receive is advertised than is posted")                  \
  X(no_credit_probe, "14: without credit not even the front message goes")                     \
  X(rnr_not_waited_for, "15: a refused request goes again at once")                            \
  X(rnr_resends_all, "15: after the RNR timer everything goes, not only what was refused")     \
  X(rnr_retries_not_counted, "15: rnr_retry never ends")                                       \
  /* What an adversary puts off */                                                             \
  X(unseen_outlives_its_key, "a deregistration does not wait for bytes that are acknowledged") \
  X(unseen_lost_with_its_qp, "bytes that are acknowledged go with their queue pair")           \
  X(unseen_after_a_message, "a message is delivered before the WRITE in front of it")          \
  X(split_atomic_lets_others_in, "an atomic comes between the two steps of another")           \
  X(split_atomic_finds_too_little, "what came in front of an atomic is overwritten by it")     \
  /* READs and atomics */                                                                      \
  X(duplicate_atomic_executed, "19: a duplicate atomic executes again")                        \
  X(atomic_not_replayed, "19: a duplicate atomic is not answered")                             \
  X(atomic_overtakes_reads, "18: an atomic executes before READs ahead of it have read")       \
  X(answer_overtakes_answers, "18: a READ reads before the READs ahead of it have")            \
  X(answers_not_pulled_again, "17: lost READ answers are not pulled again")                    \
  X(epoch_not_renewed, "18: later READs keep what they read before an earlier one")            \
  X(answers_read_again, "18: a repeated answer says what is in memory now")                    \
  X(lost_answer_taken_for_placed, "18: a lost answer may say anything when it comes again")    \
  X(digests_outlive_epoch, "18: a repeated answer may be as in an epoch before")               \
  X(refusals_not_heard, "18: a refused pull is pulled again, and again")                       \
  X(epoch_not_checked, "18: answers of any epoch count")                                       \
  X(late_pull_is_fatal, "a pull that comes late, and finds the key revoked, ends the peer")    \
  X(responder_resources_ignored, "max_dest_rd_atomic bounds nothing")                          \
  X(fence_ignored, "2: a fenced request does not wait for READs")                              \
  X(reads_overtaken, "18: what is posted behind a READ does not wait for its answers")         \
  X(keys_all_comparable, "18: addresses of all keys are compared, whatever these say")         \
  X(read_limit_ignored, "2: more READs are outstanding than max_rd_atomic")                    \
  X(lost_payload_sent_later, "what ARP makes wait keeps its payload for the next packet")      \
  X(answers_sent_last, "33: READ answers find room on a slow port when nothing is sent")       \
  /* Losing and recovering */                                                                  \
  X(late_repetition_fails, "a late repetition without memory ends sending")                    \
  X(wrong_attempt, "20: resends carry the attempt number of the transmission before")          \
  X(spurious_not_counted, "24: a resend that was not needed teaches nothing")                  \
  X(answers_do_not_acknowledge, "20: a request that was answered still waits for its ACK")     \
  X(whole_window_resent, "24: one loss makes everything outstanding lost")                     \
  X(no_tail_loss_probe, "24: the tail-loss probe sends nothing")                               \
  X(rto_never_fires, "24: the retransmission timeout never comes")                             \
  X(silence_while_queued, "25: silence is charged for what still queues in the NIC")           \
  X(refused_front_queues, "25: what the own NIC refused counts as still queued in it")         \
  X(retries_never_end, "26: a dead peer is asked for ever")                                    \
  X(marks_ignored, "27: congestion marks change nothing")                                      \
  X(losses_shrink_window, "27: a lost packet shrinks the congestion window")                   \
  X(policy_not_checked, "30: the ends need not agree on a recovery policy")                    \
  X(go_back_n_takes_all, "30: a go-back-n receiver takes packets ahead of the front")          \
  X(message_promised_early, "30: a whole message may come in several attempts")                \
  X(path_never_avoided, "37: a path that loses everything is taken like the others")           \
  X(path_never_comes_back, "37: a path that was avoided once is never taken again")            \
  X(path_order_ignored, "37: what another path has overtaken counts as overtaken")             \
  X(path_of_slow_not_waited_for, "37: a path that takes longer than the others loses all")     \
  X(paths_all_one, "37: all packets leave by one source port")                                 \
  /* Completions and errors */                                                                 \
  X(complete_on_first_ack, "7: a request completes when its first packet is acknowledged")     \
  X(read_completes_early, "a READ completes when its request is acknowledged")                 \
  X(completion_twice, "a request completes twice")                                             \
  X(completion_forgotten, "one completion in 16 is lost")                                      \
  X(completion_out_of_order, "a finished request overtakes an unfinished one")                 \
  X(slots_freed_early, "35: a send queue slot is free before its completion is polled")        \
  X(issue_after_failure, "28: requests behind a failed one are still issued")                  \
  X(flush_out_of_order, "28: the last request flushes first")                                  \
  X(fatal_nak_said_once, "28: a fatal NAK is not repeated")                                    \
  X(nak_hits_the_oldest, "28: a NAK of a partly issued request is taken for the oldest's")     \
  X(nak_hits_the_front, "28: a NAK of a READ that is acknowledged is taken for the front's")   \
  X(reads_end_with_a_nak, "28: READs before a refused request are answered no more")           \
  X(wake_up_lost, "21: the driver clears the dirty flag after it has read the status")         \
  /* The standard's RC (docs/roce.md) */                                                       \
  X(roce_gap_not_seen, "a packet ahead of the expected PSN is taken for it")                   \
  X(roce_lost_answer_acknowledged, "an ACK behind a lost READ answer counts for the READ")     \
  X(roce_answers_out_of_order, "a READ answer is taken for the next one, whatever its PSN")    \
  X(roce_duplicate_atomic_executed, "a duplicate atomic executes again")                       \
  X(roce_read_begins_anew, "what is missing of a READ is asked for from its beginning")        \
  X(roce_naks_ignored, "what is missing goes again only when a timer says so")                 \
  X(roce_nak_for_each, "each packet behind a gap gets a NAK of its own")                       \
  X(roce_read_not_repeated, "a READ that is asked for again is not answered")                  \
  X(roce_duplicate_not_acknowledged, "a repeated SEND or WRITE is not acknowledged again")     \
  X(roce_message_order_ignored, "a Middle or Last packet needs no First")                      \
  X(roce_length_ignored, "a WRITE may be longer or shorter than its First says")               \
  X(roce_middle_overwrites_first, "all packets of a message go to its beginning")              \
  X(roce_late_repetition_fatal, "a late READ that finds its key revoked ends the connection")  \
  X(roce_ack_beyond, "an ACK is for the PSN that is expected")                                 \
  X(roce_answers_forgotten, "answers that find no room are not sent")                          \
  X(roce_late_request_remembered, "a READ that was answered waits for its answers again")      \
  X(roce_answer_not_placed, "only the first answer of a READ is placed")                       \
  X(roce_requests_overlap, "what is asked for again of a READ reaches into the next request")  \
  X(roce_rnr_forgotten, "after the RNR timer nothing goes")                                    \
  X(roce_timeout_repeats_nothing, "a timeout repeats nothing")                                 \
  X(roce_goes_back_too_little, "the packet that is missing does not go again")                 \
  X(roce_hold_executes_early, "what is held does not wait for what is missing")                \
  X(roce_hold_loses_last, "the last packet that is held counts as executed, and is not")       \
  X(roce_hold_leaks, "what was held is not given back when it has executed")                   \
  X(roce_hold_survives, "what is held stays when its connection ends")                         \
  X(roce_hold_not_acknowledged, "what was held is acknowledged only where it asks for that")   \
  X(roce_second_gap_not_told, "a gap behind what was held gets no NAK")                        \
  X(roce_acknowledged_goes_again, "what has been acknowledged leaves all the same")            \
  X(dcqcn_ignores_cnp, "congestion notifications change nothing")                              \
  X(dcqcn_cuts_at_every_cnp, "notifications that come at once cut the rate as often")          \
  X(dcqcn_never_recovers, "a rate that was cut stays as it is")                                \
  X(dcqcn_rate_not_heeded, "packets leave as if there were no rate")                           \
  X(dcqcn_wake_up_forgotten, "nobody looks when the next packet may leave")                    \
  /* MRC (docs/mrc.md) */                                                                      \
  X(mrc_sack_completes, "a SACK completes what has come")                                      \
  X(mrc_ahead_not_placed, "what comes ahead of the expected packet is not placed")             \
  X(mrc_repeats_by_same_path, "what is lost goes again by the path that lost it")              \
  X(mrc_nak_said_once, "a NAK is not repeated")                                                \
  X(mrc_duplicate_not_acknowledged, "a transport ACK that was lost is not said again")         \
  X(mrc_probes_bring_nothing_back, "a path that is assumed to be bad stays so")                \
  X(mrc_marks_not_told, "SACKs don't say that the network marked their packets")               \
  X(mrc_window_ignored, "more is in flight than the peer's MPR allows")                        \
  X(mrc_congestion_ignored, "more is on its way than the congestion window allows")            \
  X(mrc_losses_not_told, "drivers find out themselves what was lost or trimmed")               \
  X(mrc_losses_blame_nobody, "losses say nothing of the path")                                 \
  X(mrc_one_path_shrinks_all, "marks of one path of many shrink the congestion window")        \
  X(mrc_slow_probe_counts, "a path whose probe waited in a queue for long is good again")      \
  X(mrc_window_too_wide, "the first PSN beyond the window counts as inside")                   \
  X(mrc_window_shrinks_at_once, "what was promised before the MPR shrank is refused")          \
  X(mrc_bitmap_shifted, "a SACK's bitmap names the PSNs behind those that have come")          \
  X(mrc_bitmap_of_the_ring, "a SACK's bitmap shows what came a window before")                 \
  X(mrc_mpr_ignored, "SACKs don't move the MPR")                                               \
  X(mrc_old_sack_moves_window, "a SACK that was overtaken brings an old MPR back")             \
  X(mrc_sack_of_what_never_left, "a SACK's bits count for PSNs that never left")               \
  X(mrc_skipped_for_ever, "an entropy value that was marked once is never taken again")        \
  X(mrc_mark_makes_bad_good, "a mark brings back what is assumed to be bad")                   \
  X(mrc_retries_all_linear, "retries never wait longer than the timeout")                      \
  X(mrc_retries_never_end, "a silent peer is waited for for ever")                             \
  X(mrc_shrinks_at_each_mark, "NSCC shrinks more than once in a round trip")                   \
  X(mrc_trimmed_shrinks_nothing, "NSCC does not heed trimmed packets")                         \
  X(mrc_acknowledged_before_placed, "a transport ACK says what has come, not what is done")    \
  X(mrc_immediate_not_stashed, "immediate data that comes early is not kept")                  \
  X(mrc_rqmsn_not_compared, "immediate data takes a receive whatever its RQMSN")               \
  X(mrc_no_receive_waits, "immediate data that finds no receive is not refused")               \
  X(mrc_immediates_unlimited, "more immediate data is on its way than max_wimm")               \
  X(mrc_trimmed_not_refused, "a trimmed packet is not refused")                                \
  X(mrc_trimmed_goes_twice, "each NACK of a trimmed packet repeats it once more")              \
  X(mrc_beyond_window_silent, "what is beyond the window is not refused")                      \
  X(mrc_oldest_passed_over, "what no transport ACK covers does not go again")                  \
  /* Buffers */                                                                                \
  X(buffered_packet_leaks, "a buffered packet is not freed when it has been executed")         \
  X(resent_packet_leaks, "received resends are not freed")                                     \
  X(copy_block_reused, "31: a block of copies is used again while packets refer to it")        \
  X(early_write_leaks, "early writes of a destroyed queue pair stay in use")                   \
  X(reorder_block_leaks, "a queue pair's slots stay in use when nothing waits in them")        \
  X(unfilled_slice_used, "memory that has not come into the mirror yet counts as there")       \
  X(region_count_leaks, "31: a region still counts packets that are back")

enum class Fault : uint8_t {
  none,
#define HOSTNIC_FAULT_ENUM(name, what) name,
  HOSTNIC_FAULTS(HOSTNIC_FAULT_ENUM)
#undef HOSTNIC_FAULT_ENUM
};

extern const Fault chosen_fault;
constexpr bool broken(Fault fault) {
  return !std::is_constant_evaluated() && fault == chosen_fault;
}

}  // namespace hostnic
