// Package fences waits until replicas or the disk have counts that Redis has acknowledged.
//
// WAIT and WAITAOF report how much of the server's data, as of the command, has reached the
// replicas or the disk. They are sent on separate connections, after the counts were acknowledged,
// so no flush waits for a replica that lags, and one command serves all callers that ask in the
// meantime. A server that took over in between may lack counts that its predecessor acknowledged,
// so it is first asked for the sequences of the counts to keep.
//
// It knows the keys and sequences to look for, but not their meaning.
package fences
