// Package replay makes a request that is sent more than once run once, and gives every copy the
// same answer.
//
// A client numbers its requests, in a sequence that only grows, and has at most one request of a
// sequence in flight. For each sequence a [Memory] keeps the number of the last request and the
// answer to it. So a copy of the last request gets its answer, waits for it, or is told that the
// answer was forgotten. An older request is told the same. A new one is carried out.
//
// # What is forgotten
//
// Memory is bounded in sequences, in bytes of answers, and in time. When something is forgotten, a
// client that repeats a request may not learn its outcome, but the request is never counted twice:
//
//   - Answers go first, the least recently used before others. Their numbers stay.
//   - A number is forgotten once it was not used for so long that nobody sends its requests any
//     more.
//   - If sequences begin with 1 (Options.FromOne), a new sequence can always replace the least
//     recently used one. A later request of the sequence that was forgotten is unknown and refused.
//     So is a copy of its first request, because the names of sequences are remembered for longer,
//     in a Bloom filter. The filter takes one new name in some hundreds for one that was used, but
//     never a used one for new.
//   - If sequences begin with any number, a forgotten sequence can't be told from a new one. So
//     none is forgotten early, and a new one is refused while there is no room.
package replay
