#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""memory_check.py ROUNDS: Python with multiprocessing. Memory is registered, children that are forked meanwhile look at
what they have inherited, while the parent and its peer write; workers share memory that is registered."""

import ctypes
import mmap
import multiprocessing
import os
import random
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

exchange = ctypes.CDLL(str(Path(__file__).resolve().parent / "libmemory-exchange.so"))
exchange.exchange_register.restype = ctypes.c_void_p
exchange.exchange_find_wrong.restype = ctypes.c_long
P, S, U = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
exchange.exchange_register.argtypes = [P, S]
exchange.exchange_deregister.argtypes = [P]
exchange.exchange_peer_writes.argtypes = exchange.exchange_peer_reads.argtypes = [P, S, U]
exchange.exchange_fill.argtypes = exchange.exchange_find_wrong.argtypes = [U, P, S]


def find_wrong(seed, at, size):
    return exchange.exchange_find_wrong(seed, at, size)


def child(seed, at, size, later_s):
    """Sees what was there when it was forked, now and later, and its own writes."""
    if find_wrong(seed, at, size) >= 0:
        os._exit(1)
    time.sleep(later_s)
    if find_wrong(seed, at, size) >= 0:
        os._exit(2)
    exchange.exchange_fill(seed + 7, at, size)
    if find_wrong(seed + 7, at, size) >= 0:
        os._exit(3)
    # By way of Python: collects, imports, allocates.
    list(map(str, range(10_000)))
    os._exit(0)


def worker(name, seed, size, answers):
    memory = shared_memory.SharedMemory(name=name)
    view = (ctypes.c_char * size).from_buffer(memory.buf)
    answers.put(find_wrong(seed, ctypes.addressof(view), size))
    exchange.exchange_fill(seed + 1, ctypes.addressof(view), size)
    answers.put(0)
    del view
    memory.close()


def check(good, what, number):
    if not good:
        sys.exit(f"round {number}: {what}")


def private_round(number):
    size = random.choice([1, 5000, 65536, 300_000, 3 << 20, 24 << 20 if number % 20 == 0 else 8192])
    if number % 2:
        backing = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        backing = bytearray(size)
    view = (ctypes.c_char * size).from_buffer(backing)
    at, seed = ctypes.addressof(view), number * 10
    exchange.exchange_fill(seed, at, size)
    region = exchange.exchange_register(at, size)
    check(region, "not registered", number)
    check(exchange.exchange_peer_reads(region, size, seed) == 0, "the peer reads something else", number)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=child, args=(seed, at, size, random.random() / 20)) for _ in range(2)]
    for each in children:
        each.start()
    check(exchange.exchange_peer_writes(region, size, seed + 1) == 0, "the peer can't write", number)
    check(find_wrong(seed + 1, at, size) < 0, "other bytes after the peer's WRITE", number)
    exchange.exchange_fill(seed + 2, at, size)
    check(exchange.exchange_peer_reads(region, size, seed + 2) == 0, "the peer reads something else", number)
    for each in children:
        each.join()
        check(each.exitcode == 0, f"a child of {size} bytes says {each.exitcode}", number)
    check(exchange.exchange_deregister(region) == 0, "not deregistered", number)
    check(find_wrong(seed + 2, at, size) < 0, "other bytes when it was deregistered", number)
    del view


def shared_round(number):
    size, seed = random.choice([5000, 100_000, 1 << 20]), number * 10
    memory = shared_memory.SharedMemory(create=True, size=size)
    view = (ctypes.c_char * size).from_buffer(memory.buf)
    at = ctypes.addressof(view)
    region = exchange.exchange_register(at, size)
    check(region, "not registered", number)
    check(exchange.exchange_peer_writes(region, size, seed) == 0, "the peer can't write", number)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=worker, args=(memory.name, seed, size, answers))
    process.start()
    check(answers.get() < 0, "a worker sees other bytes", number)
    answers.get()
    process.join()
    check(exchange.exchange_peer_reads(region, size, seed + 1) == 0, "the peer does not see a worker's bytes", number)
    check(exchange.exchange_deregister(region) == 0, "not deregistered", number)
    del view
    memory.close()
    memory.unlink()


def main():
    rounds = int(sys.argv[1])
    if exchange.exchange_open() != 0:
        sys.exit(1)
    for number in range(rounds):
        (shared_round if number % 4 == 3 else private_round)(number)
    print(f"{rounds} rounds, no difference")


if __name__ == "__main__":
    main()
