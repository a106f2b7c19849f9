// Package slab allocates blocks of 64-bit words from huge pages, and accounts for them.
//
// With millions of keys nearly every access touches another page, and finding a page can take as
// long as the access. So where the system has huge pages, a [Pool] uses them (slabs of 2 MiB,
// mapped outside the Go heap); elsewhere it uses the Go heap. Blocks whose size is a power of two
// are cut from slabs, blocks of other sizes come from the Go heap. A slab with no block in use is
// returned to the system at once, as are all slabs when the pool becomes garbage.
//
// A [Budget] only counts: callers check that a block fits before they allocate it. Part of a budget
// is a reserve that only some callers may use.
//
// All methods are safe for concurrent use. A block may be read for as long as its pool is reachable
// and the block has not been released. The garbage collector does not see pointers into a slab, so
// the holder of a block must also hold the pool. Blocks contain no Go pointers.
package slab
