//go:build !linux || race

package slab

// The race detector looks at the Go heap only.
const hugePages = false

func mapRegion(int, int, bool) (region []byte, at int) { return nil, 0 }

func unmapRegion([]byte) {}

func forget([]uint64) {}
