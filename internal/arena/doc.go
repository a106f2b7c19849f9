// Package arena allocates blocks of words of any size, each identified by a 32-bit [Ref].
//
// A million small Go objects cost twice the memory, and the garbage collector visits each of them;
// the chunks of an arena contain no pointers. Released blocks are kept by size and split for
// smaller ones. Fragmentation is undone by the caller, who knows where references to blocks are: it
// either moves all blocks to another arena ([Arena.Sparse]) or evacuates the emptiest chunks
// ([Arena.Evacuate]).
//
// A Ref is valid until its block is released, whatever else happens in the arena. An arena has no
// lock: callers that share one must guard it. It never refuses to allocate: callers ask the pool's
// budget first.
package arena
