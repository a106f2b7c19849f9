//go:build linux && !race

package slab

import (
	"syscall"
	"unsafe"
)

const hugePages = true

// mapRegion maps n slabs of size bytes each. It returns the region and the offset of the first
// slab, which is aligned to size. If small is set, the first slab has small pages. It returns nil
// if the system has no more memory.
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
	_ = syscall.Madvise(huge, syscall.MADV_HUGEPAGE) // a kernel without huge pages uses small ones
	return region, at
}

func unmapRegion(region []byte) { _ = syscall.Munmap(region) }

// returnMemory returns the memory of a slab to the system. The slab then reads as zero.
func returnMemory(words []uint64) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
	if syscall.Madvise(b, syscall.MADV_DONTNEED) != nil {
		clear(words)
	}
}
