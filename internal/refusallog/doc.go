// Package refusallog remembers the refusals that a node has answered, for explanations.
//
// Each refusal gets a short id, which names the node and can be looked up for an hour. Equal
// refusals of a key within a minute share a record and its id: the record counts them and describes
// the latest. So a client that keeps asking takes no room from others. Requests of about the same
// number of events, with the same number of bits, can be equal.
//
// A [Log] keeps the newest 16,384 records, in at most 16 MiB, and grows up to that as refusals
// come. The oldest are overwritten. Nothing survives the process.
//
// A [Log] is safe for concurrent use. Recording allocates nothing once the memory of the
// overwritten record is large enough.
package refusallog
