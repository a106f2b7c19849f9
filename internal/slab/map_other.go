//go:build !linux || race

package slab

// The race detector only checks the Go heap, so with it blocks come from there.
const hugePages = false

func mapRegion(int, int, bool) (region []byte, at int) { return nil, 0 }

func unmapRegion([]byte) {}

func returnMemory([]uint64) {}
