package memory

import (
	"sync"
	"sync/atomic"

	"twotier.dev/twotier/internal/listener"
)

// Budget bounds the resources that the clients of an endpoint use at a time: connections, memory
// for reading requests, and memory for executing and answering them. A request always takes memory
// for reading first, so requests can't wait for each other in a circle. Each address may only use a
// part of everything, so that a greedy client leaves something for others.
type Budget struct {
	// Conns are the open connections, and the accounts of their memory.
	Conns *listener.Conns

	served atomic.Int64 // number of awake connections, to be read without a lock
	bodies sync.Pool    // of *[PooledBody]byte
}

// The accounts of a budget.
const (
	// Reading and Answering are for requests.
	Reading = iota
	Answering
	// Awake is for connections that are not parked.
	Awake
	pages // of metrics
)

// pagesBytes bounds the metrics pages that have not been read yet, to about thirty. They have a
// separate account so that metrics work even when clients use up everything else.
const pagesBytes = 1 << 20

// awakeBytes is the additional memory of a connection that is not parked, for buffers and a header.
const awakeBytes = 12 << 10

// leastAwake is the minimum number of connections that can be served at a time, half of them from
// one address.
const leastAwake = 64

// NewBudget returns a budget of half of the memory in l. Each address may use the same share of it
// as of the connections.
func NewBudget(l listener.Limits) *Budget {
	bytes := l.MaxMemory / 2
	b := &Budget{Conns: listener.NewConns(l.MaxConns, l.MaxConnsPerAddress, []*listener.Account{
		Reading:   l.Account(bytes/4, 0),
		Answering: l.Account(bytes-bytes/4, 0),
		Awake:     l.Account(bytes/4, leastAwake/2*awakeBytes),
		pages:     l.Account(pagesBytes, pagesBytes/8),
	}...)}
	b.bodies.New = func() any { return new([PooledBody]byte) }
	return b
}
