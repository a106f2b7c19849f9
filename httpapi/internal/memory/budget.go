package memory

import (
	"sync"
	"sync/atomic"

	"twotier.dev/twotier/internal/account"
)

// Budget bounds the resources that the clients of an endpoint use at a time: connections, memory
// for reading requests, and memory for executing and answering them. A request always takes memory
// for reading first, so requests can't wait for each other in a circle. Each address may only use a
// part of everything, so that a greedy client leaves something for others.
type Budget struct {
	// Conns are the open connections.
	Conns *account.Conns
	// Reading and Answering account for the memory of requests, Awake for that of connections that
	// are not parked.
	Reading, Answering, Awake account.Account

	served atomic.Int64    // number of awake connections, to be read without a lock
	pages  account.Account // of metrics
	bodies sync.Pool       // of *[PooledBody]byte
}

// The shares of a client, in the order of the accounts in NewBudget.
const (
	reading = iota
	answering
	awake
	pages
)

// pagesBytes bounds the metrics pages that have not been read yet, to about thirty. They have a
// separate account so that metrics work even when clients use up everything else.
const pagesBytes = 1 << 20

// awakeBytes is the additional memory of a connection that is not parked, for buffers and a header.
const awakeBytes = 12 << 10

// leastAwake is the minimum number of connections that can be served at a time, half of them from
// one address.
const leastAwake = 64

// NewBudget returns a budget of this many connections and bytes. Each address may use eachConns
// connections and the same share of the bytes.
func NewBudget(conns, eachConns int, bytes int64) *Budget {
	part := float64(eachConns) / float64(conns)
	each := int64(float64(bytes) * part)
	b := &Budget{
		Reading:   account.Account{Most: bytes / 4, Each: each / 4},
		Answering: account.Account{Most: bytes - bytes/4, Each: each - each/4},
		Awake: account.Account{Most: max(bytes/4, leastAwake*awakeBytes),
			Each: max(each/4, leastAwake/2*awakeBytes)},
		pages: account.Account{Most: pagesBytes, Each: max(int64(pagesBytes*part), pagesBytes/8)},
	}
	b.Conns = account.NewConns(conns, eachConns, &b.Reading, &b.Answering, &b.Awake, &b.pages)
	b.bodies.New = func() any { return new([PooledBody]byte) }
	return b
}
