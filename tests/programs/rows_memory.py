# SPDX-License-Identifier: BSD-3-Clause
"""Programs that fork, allocate and give memory back while it is registered. Every byte is compared."""

import os

from row import Row, through

MEMORY = []
# For minutes of each: MEMORY_ROUNDS=3000.
ROUNDS = int(os.environ.get("MEMORY_ROUNDS", "60"))
LEAST = ROUNDS * 1000
LIMIT_S = 240 + 4 * max(0, ROUNDS - 60)
OWN_TEST = "the test is our own (`tests/programs/%s`)"
# The C library's functions are the allocator's, and the rest is hostnic's.
ALLOCATORS = {"": ("", ["python3"]), ", jemalloc": ("libjemalloc.so.2", ["libjemalloc2"]),
              ", tcmalloc": ("libtcmalloc_minimal.so.4", ["libtcmalloc-minimal4"])}


def row(name, packages, client, source, **more):
    MEMORY.append(Row("Registered memory", name, packages, client=client, expect=(rf"{ROUNDS} rounds, no difference",),
                      moves=through(LEAST), limit_s=LIMIT_S, note=OWN_TEST % source, **more))


for allocator, (library, needed) in ALLOCATORS.items():
    preload = f"LD_PRELOAD={library}:$LD_PRELOAD " if library else ""
    row(f"Python, multiprocessing{allocator}", needed, f"{preload}exec python3 $PROGRAMS/memory_check.py {ROUNDS}",
        "memory_check.py", ci=not library)
row("Go, cgo", ["golang-go"], "export GOCACHE=$PWD/cache LD_LIBRARY_PATH=$PROGRAMS; CGO_LDFLAGS=\"-L$PROGRAMS -lmemory-exchange\" "
    f"go build -o memory-check $PROGRAMS/memory_check.go && exec ./memory-check {ROUNDS}", "memory_check.go")
row("Java, JNI", ["default-jdk-headless"], "java=$(dirname $(dirname $(readlink -f $(which javac)))); export LD_LIBRARY_PATH=$PROGRAMS; "
    "gcc -shared -fPIC -I$java/include -I$java/include/linux -o libmemory_exchange_jni.so $PROGRAMS/memory_exchange_jni.c "
    "-L$PROGRAMS -lmemory-exchange && javac -d . $PROGRAMS/MemoryCheck.java && "
    f"exec java -Xmx256m -Djava.library.path=. MemoryCheck {ROUNDS}", "MemoryCheck.java")
# The thread that does it is a guest in the program (memory_guest.c); the program forks.
GUEST = "the guest is our own (`tests/programs/memory_guest.c`)"
for program, name, packages in (("redis", "redis-server, BGSAVE", ["redis-server", "redis-tools"]),
                                ("postgres", "postgres, pgbench", ["postgresql"])):
    MEMORY.append(Row("Registered memory", name, packages, client=f"exec python3 $PROGRAMS/memory_guests.py {program} {ROUNDS}",
                      expect=(rf"{ROUNDS} rounds, no difference; \d+ forks",), moves=through(LEAST), limit_s=LIMIT_S,
                      loses=False, strict=False, note=GUEST))
