//go:build linux && !race

package slab

import (
	"syscall"
	"unsafe"
)

const hugePages = true

// mapRegion maps n slabs of so many bytes and returns where the first begins, which is aligned to
// its size. The first one has small pages if small is set. It returns nil if the system has no
// more.
func mapRegion(size, n int, small bool) (region []byte, at int) {
	region, err := syscall.Mmap(-1, 0, (n+1)*size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, 0
	}
	at = int(-uintptr(unsafe.Pointer(unsafe.SliceData(region))) & uintptr(size-1))
	huge := region[at : at+n*size]
	if small {
		huge = huge[size:]
	}
	_ = syscall.Madvise(huge, syscall.MADV_HUGEPAGE) // a kernel without them has small ones
	return region, at
}

func unmapRegion(region []byte) { _ = syscall.Munmap(region) }

// forget gives the memory of a slab back to the system. It reads as zero from then on.
func forget(words []uint64) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
	if syscall.Madvise(b, syscall.MADV_DONTNEED) != nil {
		clear(words)
	}
}
