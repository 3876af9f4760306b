// SPDX-License-Identifier: BSD-3-Clause
// memory_check ROUNDS: a Go program, by cgo. It registers memory of the C library's, of mmap, and of Go's own heap, of
// which pages are given back (MADV_DONTNEED) meanwhile, while other threads allocate and processes are started.
package main

/*
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
int exchange_open(void);
void* exchange_register(void*, size_t);
int exchange_deregister(void*);
int exchange_peer_writes(void*, size_t, uint32_t);
int exchange_peer_reads(void*, size_t, uint32_t);
void exchange_fill(uint32_t, void*, size_t);
long exchange_find_wrong(uint32_t, const void*, size_t);
*/
import "C"

import (
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

func fail(what string, round int) {
	fmt.Fprintf(os.Stderr, "round %d: %s\n", round, what)
	os.Exit(1)
}

// Allocates and forgets, so that the collector works and gives pages back.
func churn() {
	for {
		list := make([][]byte, 0, 64)
		for i := 0; i < 64; i++ {
			list = append(list, make([]byte, 1+rand.Intn(256<<10)))
		}
		runtime.KeepAlive(list)
		debug.FreeOSMemory()
		time.Sleep(time.Millisecond)
	}
}

func round(number int) {
	bytes := 1 + rand.Intn(1<<20)
	var at unsafe.Pointer
	var free func()
	switch number % 3 {
	case 0:
		at = C.malloc(C.size_t(bytes))
		free = func() { C.free(at) }
	case 1:
		slice, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			fail(err.Error(), number)
		}
		at = unsafe.Pointer(&slice[0])
		free = func() { syscall.Munmap(slice) }
	case 2: // Go's heap does not move
		slice := make([]byte, bytes)
		at = unsafe.Pointer(&slice[0])
		free = func() { runtime.KeepAlive(slice) }
	}
	size, seed := C.size_t(bytes), C.uint32_t(3*number)
	C.exchange_fill(seed, at, size)
	region := C.exchange_register(at, size)
	if region == nil {
		fail("not registered", number)
	}
	if C.exchange_peer_reads(region, size, seed) != 0 {
		fail("the peer reads something else", number)
	}
	if number%10 == 0 {
		if err := exec.Command("/bin/true").Run(); err != nil {
			fail(err.Error(), number)
		}
	}
	if C.exchange_peer_writes(region, size, seed+1) != 0 {
		fail("the peer can't write", number)
	}
	if wrong := C.exchange_find_wrong(seed+1, at, size); wrong >= 0 {
		fail(fmt.Sprintf("kind %d: byte %d of %d after the peer's WRITE", number%3, wrong, bytes), number)
	}
	C.exchange_fill(seed+2, at, size)
	if C.exchange_peer_reads(region, size, seed+2) != 0 {
		fail("the peer reads something else", number)
	}
	if C.exchange_deregister(region) != 0 {
		fail("not deregistered", number)
	}
	if wrong := C.exchange_find_wrong(seed+2, at, size); wrong >= 0 {
		fail(fmt.Sprintf("byte %d of %d when it was deregistered", wrong, bytes), number)
	}
	free()
}

func main() {
	most, err := strconv.Atoi(os.Args[1])
	if err != nil || C.exchange_open() != 0 {
		os.Exit(1)
	}
	go churn()
	go churn()
	for number := 0; number < most; number++ {
		round(number)
	}
	fmt.Printf("%d rounds, no difference\n", most)
}
