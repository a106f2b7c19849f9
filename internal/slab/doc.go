// Package slab hands out blocks of 64-bit words from huge pages, and keeps account of them.
//
// With millions of keys every access is to another page, and finding out where a page is can take
// as long as the access; so where the system has huge pages a [Pool] uses them (slabs of 2 MiB,
// mapped outside of the Go heap), and elsewhere the Go heap. Blocks whose size is a power of two
// are cut from slabs; blocks of other sizes come from the Go heap. A slab of which nothing is in
// use is given back to the system at once, all of them once the pool is garbage.
//
// The account ([Budget]) only measures: who takes a block asks first whether it fits. A part of the
// budget is a reserve, which some may use and others may not.
//
// All methods may be called at the same time. A block may be read for as long as its pool is
// reachable and it has not been given back: the collector does not see a pointer into a slab, so
// who holds a block must hold the pool. Blocks hold no Go pointers.
package slab
