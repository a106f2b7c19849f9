package httpapi

import (
	"sync/atomic"

	"twotier.dev/twotier/internal/account"
)

// allowance bounds the resources that the clients of a server use at a time: connections, memory
// for reading requests, and memory for executing and answering them. A request always takes memory
// for reading first, so requests can't wait for each other in a circle. Each address may only use a
// part of everything, so that a greedy client leaves something for others.
type allowance struct {
	conns              *account.Conns[usage]
	reading, answering account.Account
	awake              account.Account // connections that are not parked
	served             atomic.Int64    // number of awake connections, to be read without a lock
	pages              account.Account // of metrics
}

// usage is the memory that one address uses.
type usage struct {
	reading, answering account.Usage
	awake, pages       account.Usage
}

// client is an address that has connections.
type client = account.Client[usage]

// pagesBytes bounds the metrics pages that have not been read yet, to about thirty. They have a
// separate account so that metrics work even when clients use up everything else.
const pagesBytes = 1 << 20

// leastAwake is the minimum number of connections that can be served at a time, half of them from
// one address.
const leastAwake = 64

// newAllowance returns an allowance of this many connections and bytes. Each address may use
// eachConns connections and the same share of the bytes.
func newAllowance(conns, eachConns int, bytes int64) *allowance {
	part := float64(eachConns) / float64(conns)
	each := int64(float64(bytes) * part)
	return &allowance{
		conns:     account.NewConns[usage](conns, eachConns),
		reading:   account.Account{Most: bytes / 4, Each: each / 4},
		answering: account.Account{Most: bytes - bytes/4, Each: each - each/4},
		awake: account.Account{Most: max(bytes/4, leastAwake*awakeBytes),
			Each: max(each/4, leastAwake/2*awakeBytes)},
		pages: account.Account{Most: pagesBytes, Each: max(int64(pagesBytes*part), pagesBytes/8)},
	}
}
