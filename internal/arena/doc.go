// Package arena hands out blocks of words of any size, each named by a 32-bit [Ref].
//
// It exists because a million small Go objects cost twice the memory and the collector has to visit
// each, while the chunks of an arena hold no pointers. Blocks that were released are kept by size
// and cut up for smaller ones. What fragmentation leaves is won back by the one who knows where the
// blocks are referred to: it either moves all of them to another arena ([Arena.Sparse]) or
// evacuates the emptiest chunks ([Arena.Evacuate]).
//
// A Ref stays valid until its block is released, whatever else happens to the arena. An arena has
// no lock: whoever shares one guards it. It does not refuse: whoever takes a block asks the pool's
// budget first.
package arena
