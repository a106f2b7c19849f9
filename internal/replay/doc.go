// Package replay has a request that is sent again carried out once, and answered as it was.
//
// Who sends requests numbers them, in a sequence that only grows, and has one of a sequence under
// way at a time. A [Memory] keeps of each sequence the number of the last request and the answer to
// it. So a copy of the last request gets its answer, or waits for it, or hears that it was
// forgotten; an older one hears that; and a new one is carried out.
//
// # What is forgotten
//
// Memory is bounded in sequences, in bytes of answers, and in time. Forgetting costs whoever
// repeats a request certainty about its outcome, never a second count:
//
//   - Answers go first, those used least lately before others. Their numbers stay.
//   - A number that was not used for long is forgotten when nobody sends its requests any more.
//   - Where sequences begin with 1 (Options.FromOne), the one used least lately makes room for a
//     new one at any time. A later request of it is unknown and refused, and so is its first one,
//     because the names of sequences are remembered for longer, in a Bloom filter. It may take a
//     new name for one that was used, one in some hundreds of them, and never one that was used for
//     new.
//   - Where they begin with any number there is no telling a forgotten sequence from a new one. So
//     none is forgotten early, and a new one is refused while there is no room.
package replay
