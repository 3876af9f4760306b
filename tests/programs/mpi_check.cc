// SPDX-License-Identifier: BSD-3-Clause
// Four or more ranks exchange data in MPI's ways, point to point, in collectives and one-sided, and
// check each element. Built with the compiler wrapper of whichever MPI is to be tried.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

int rank_of_this = 0;
int ranks = 0;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "rank %d: wrong contents: %s\n", rank_of_this, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// A value that tells where an element comes from, where it goes and which one it is.
int mark(int from, int to, int index) { return from * 1000003 + to * 7919 + index * 31; }

std::vector<int> marked(int from, int to, int count) {
  std::vector<int> values(count);
  for (int i = 0; i < count; ++i) values[i] = mark(from, to, i);
  return values;
}

// Everybody sends to everybody, itself included, all messages at once: eager and rendezvous sizes.
void point_to_point() {
  for (const int count : {1, 25, 1024, 16384, 262144, 1250001}) {
    std::vector<std::vector<int>> out;
    std::vector<std::vector<int>> in(ranks, std::vector<int>(count, -1));
    std::vector<MPI_Request> requests(2 * ranks);
    for (int peer = 0; peer < ranks; ++peer) {
      out.push_back(marked(rank_of_this, peer, count));
      MPI_Irecv(in[peer].data(), count, MPI_INT, peer, count, MPI_COMM_WORLD, &requests[peer]);
    }
    for (int peer = 0; peer < ranks; ++peer)
      MPI_Isend(out[peer].data(), count, MPI_INT, peer, count, MPI_COMM_WORLD,
                &requests[ranks + peer]);
    MPI_Waitall(2 * ranks, requests.data(), MPI_STATUSES_IGNORE);
    for (int peer = 0; peer < ranks; ++peer)
      require(in[peer] == marked(peer, rank_of_this, count), "point to point");
  }
}

// A message that arrives before its receive is posted, synchronous, found by probing.
void unexpected() {
  const int to = (rank_of_this + 1) % ranks;
  const int from = (rank_of_this + ranks - 1) % ranks;
  const std::vector<int> out = marked(rank_of_this, to, 50000);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Issend(out.data(), 50000, MPI_INT, to, 3, MPI_COMM_WORLD, &request);
  MPI_Status status;
  MPI_Probe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &status);
  int count = 0;
  MPI_Get_count(&status, MPI_INT, &count);
  std::vector<int> in(count, -1);
  MPI_Recv(in.data(), count, MPI_INT, status.MPI_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  require(status.MPI_SOURCE == from && in == marked(from, rank_of_this, 50000), "probed message");
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void collectives() {
  constexpr int kCount = 1000;
  std::vector<long> values(kCount);
  std::vector<long> sums(kCount);
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < kCount; ++i) values[i] = 1000L * rank_of_this + i + round;
    MPI_Allreduce(values.data(), sums.data(), kCount, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    const long of_ranks = 1000L * ranks * (ranks - 1) / 2;
    for (int i = 0; i < kCount; ++i)
      require(sums[i] == of_ranks + static_cast<long>(ranks) * (i + round), "allreduce");
    MPI_Bcast(values.data(), kCount, MPI_LONG, round % ranks, MPI_COMM_WORLD);
    for (int i = 0; i < kCount; ++i)
      require(values[i] == 1000L * (round % ranks) + i + round, "broadcast");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  constexpr int kBig = 200000;
  std::vector<int> out;
  for (int peer = 0; peer < ranks; ++peer) {
    const std::vector<int> part = marked(rank_of_this, peer, kBig);
    out.insert(out.end(), part.begin(), part.end());
  }
  std::vector<int> in(out.size(), -1);
  MPI_Alltoall(out.data(), kBig, MPI_INT, in.data(), kBig, MPI_INT, MPI_COMM_WORLD);
  for (int peer = 0; peer < ranks; ++peer)
    for (int i = 0; i < kBig; ++i)
      require(in[peer * kBig + i] == mark(peer, rank_of_this, i), "alltoall");
  std::vector<int> all(static_cast<size_t>(ranks) * kBig, -1);
  MPI_Allgather(out.data(), kBig, MPI_INT, all.data(), kBig, MPI_INT, MPI_COMM_WORLD);
  for (int peer = 0; peer < ranks; ++peer)
    for (int i = 0; i < kBig; ++i) require(all[peer * kBig + i] == mark(peer, 0, i), "allgather");
}

// Each rank owns a part for each of its peers, and an element that all of them count up.
void one_sided() {
  constexpr int kPart = 50000;
  const MPI_Aint counter = static_cast<MPI_Aint>(kPart) * ranks;
  int* window = nullptr;
  MPI_Win win = MPI_WIN_NULL;
  // MPICH 4.0.2 puts into the wrong place where a window is no multiple of 64 bytes, with and
  // without a NIC.
  const MPI_Aint bytes = ((counter + 1) * static_cast<MPI_Aint>(sizeof(int)) + 63) / 64 * 64;
  MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
  MPI_Win_fence(0, win);
  for (MPI_Aint i = 0; i <= counter; ++i) window[i] = 0;
  MPI_Win_fence(0, win);
  std::vector<std::vector<int>> out;
  for (int peer = 0; peer < ranks; ++peer) {
    out.push_back(marked(rank_of_this, peer, kPart));
    MPI_Put(out[peer].data(), kPart, MPI_INT, peer, static_cast<MPI_Aint>(kPart) * rank_of_this,
            kPart, MPI_INT, win);
  }
  MPI_Win_fence(0, win);
  for (int peer = 0; peer < ranks; ++peer)
    for (int i = 0; i < kPart; ++i)
      require(window[peer * kPart + i] == mark(peer, rank_of_this, i), "put");
  const int target = (rank_of_this + 1) % ranks;
  const int owner = (rank_of_this + 2) % ranks;
  std::vector<int> in(kPart, -1);
  MPI_Get(in.data(), kPart, MPI_INT, target, static_cast<MPI_Aint>(kPart) * owner, kPart, MPI_INT,
          win);
  MPI_Win_fence(0, win);
  require(in == marked(owner, target, kPart), "get");
  const std::vector<int> ones(kPart, 1);
  MPI_Accumulate(ones.data(), kPart, MPI_INT, target, static_cast<MPI_Aint>(kPart) * owner, kPart,
                 MPI_INT, MPI_SUM, win);
  MPI_Win_fence(0, win);
  const int changed = (rank_of_this + ranks - 1 + 2) % ranks;
  for (int i = 0; i < kPart; ++i)
    require(window[changed * kPart + i] == mark(changed, rank_of_this, i) + 1, "accumulate");
  MPI_Win_fence(0, win);
  MPI_Win_lock_all(0, win);
  constexpr int kTimes = 200;
  const int one = 1;
  for (int i = 0; i < kTimes; ++i) {
    int before = -1;
    MPI_Fetch_and_op(&one, &before, MPI_INT, 0, counter, MPI_SUM, win);
    MPI_Win_flush(0, win);
    require(before >= i && before < kTimes * ranks, "fetch and op");
  }
  MPI_Win_unlock_all(win);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
  int total = -1;
  MPI_Get(&total, 1, MPI_INT, 0, counter, 1, MPI_INT, win);
  MPI_Win_unlock(0, win);
  require(total == kTimes * ranks, "sum of all fetch and ops");
  MPI_Win_free(&win);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_this);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  point_to_point();
  unexpected();
  collectives();
  one_sided();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_of_this == 0) std::printf("mpi_check: all contents are right, %d ranks\n", ranks);
  MPI_Finalize();
  return 0;
}
