// Package replay runs a request that is sent more than once only once, and gives every copy the
// same answer.
//
// A client numbers its requests, in a sequence that only grows, and has at most one request of a
// sequence in flight. For each sequence a [Memory] keeps the number of the last request and its
// answer. So a copy of the last request receives its answer, waits for it, or learns that the
// answer was forgotten. An older request gets the same reply as one with a forgotten answer. A new
// one is carried out.
//
// # Forgetting
//
// Memory is bounded in sequences, in bytes of answers, and in time. When an entry is forgotten, a
// client that repeats a request may not learn its outcome, but the request is never counted twice:
//
//   - Answers go first, the least recently used ones before others. Their numbers stay.
//   - A number is forgotten once it has been unused for so long that no client sends its requests
//     any more.
//   - If sequences begin with 1 (Options.FromOne), a new sequence can always replace the least
//     recently used one. A later request of the forgotten sequence is unknown and refused. So is a
//     copy of its first request, because the names of sequences are remembered for longer, in a
//     Bloom filter. The filter mistakes one new name in some hundreds for a used one, but never a
//     used one for new.
//   - If sequences begin with any number, a forgotten sequence can't be distinguished from a new
//     one. So none is forgotten early, and a new one is refused while there is no room.
package replay
