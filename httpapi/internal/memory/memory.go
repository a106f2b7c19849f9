package memory

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/request"
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

const (
	// OwnBytes is the size of an answer that takes nothing from the budget, about as much as the
	// connection takes anyway. Ordinary requests, of one operation, need no more, so they are
	// served no matter how much others have taken.
	OwnBytes = 8 << 10
	// memoryStep is the unit in which memory is taken.
	memoryStep = 16 << 10
	// PooledBody is the size of the body buffers that are reused. Larger buffers are not kept.
	PooledBody = 64 << 10
)

// Request is the memory that one connection has taken for the request in progress, from its
// header until the answer is written or the connection is gone. It belongs to the goroutine that
// serves the connection.
type Request struct {
	budget   *Budget
	client   *listener.Client
	wait     time.Duration // how long to wait for memory
	patience time.Duration // how long the sender waits for the answer, 0 if unknown

	node      *listener.Share // for reading a message of another node; nil otherwise
	read      int64           // bytes taken for reading
	need, got int64           // bytes that the answer needs, and bytes taken for it
	paged     int64           // bytes taken for a metrics page, from another account

	body *[PooledBody]byte // returned to bodies by Release
	last func()            // called by Release
}

// NewRequest returns the memory of a connection of client, which waits as long as wait for memory.
func NewRequest(budget *Budget, client *listener.Client, wait time.Duration) Request {
	return Request{budget: budget, client: client, wait: wait}
}

// Client returns the client of the connection.
func (m *Request) Client() *listener.Client { return m.client }

// IsCrowded reports whether more than half of the memory for connections that are not parked is in
// use.
func (m *Request) IsCrowded() bool {
	return m.budget.served.Load()*awakeBytes > m.budget.Conns.Accounts[Awake].Most/2
}

// BusyProblem is the problem of a request that can't get memory now. No part of it has been
// executed.
func BusyProblem() *wire.Problem {
	return &wire.Problem{Kind: wire.Overload,
		Detail: "too much is being read and answered at this moment; nothing was done"}
}

// UnansweredProblem is the problem of an executed request whose answer did not get memory because
// of p.
func UnansweredProblem(p *wire.Problem) *wire.Problem {
	why := "there is no memory now for the answer"
	if p.Kind == wire.TooLarge {
		why = "the answer takes more memory than one address may use here, by --max-memory"
	}
	return &wire.Problem{Kind: wire.Unknown, Detail: "carried out, but " + why}
}

// readingShare returns the share for reading.
func (m *Request) readingShare() *listener.Share {
	if m.node != nil {
		return m.node
	}
	return &m.client.Shares[Reading]
}

// ChargeNode charges the body, a message of another node, to the share from.
func (m *Request) ChargeNode(from *listener.Share) { m.node = from }

// IsOfNode reports whether the request is a message of another node.
func (m *Request) IsOfNode() bool { return m.node != nil }

// ReserveRead reserves n bytes for reading.
func (m *Request) ReserveRead(n int64) *wire.Problem {
	from := m.readingShare()
	if m.read+n > from.Account().Each { // waiting would not help
		return &wire.Problem{Kind: wire.TooLarge,
			Detail: "more than this node can read of one address at once; send it in parts"}
	}
	if !from.Take(n, m.waitUntil(m.read)) {
		return BusyProblem()
	}
	m.read += n
	return nil
}

// waitUntil returns how long to wait for memory. A request that has some already does not wait,
// because others may be waiting for its memory.
func (m *Request) waitUntil(has int64) time.Time {
	if has > 0 {
		return time.Time{}
	}
	wait := m.wait
	if m.patience > 0 {
		wait = min(wait, m.patience/2)
	}
	return time.Now().Add(wait)
}

// SetPatience reads how long the sender waits for the answer, in milliseconds. An overload has to
// be answered earlier: a sender that gets no answer can't distinguish it from an outage.
func (m *Request) SetPatience(text []byte) {
	if ms, ok := request.ParseNumber(text); ok && ms > 0 {
		m.patience = time.Duration(min(ms, time.Hour.Milliseconds())) * time.Millisecond
	}
}

// ReserveExpected takes n bytes for the answer, or a client's maximum if that is less, before the
// actual need is known.
func (m *Request) ReserveExpected(n int64) *wire.Problem {
	if n <= OwnBytes {
		return nil
	}
	return m.takeForAnswer(min(n, m.budget.Conns.Accounts[Answering].Each))
}

// Bytes of memory that parts of answers take, at most: a byte of a document of rules that is
// parsed, and a key in a list, whose name each node may report.
const (
	documentCost = 40
	keyCost      = 2 << 10
)

// ReserveDocument takes memory for parsing a document of rules of n bytes, before it is parsed. As
// with all answers that grow with what the node has, a client's whole share is enough for any of
// them, so that it builds one large answer at a time. A request takes it once.
func (m *Request) ReserveDocument(n int) *wire.Problem {
	return m.ReserveExpected(int64(documentCost * n))
}

// ReserveKeys takes memory for a list of n keys.
func (m *Request) ReserveKeys(n int) *wire.Problem { return m.ReserveExpected(int64(keyCost * n)) }

// MostForAnswer returns how long an answer may be.
func (m *Request) MostForAnswer() int64 {
	return OwnBytes + m.budget.Conns.Accounts[Answering].Each
}

// takeForAnswer takes n bytes for the answer.
func (m *Request) takeForAnswer(n int64) *wire.Problem {
	if !m.client.Shares[Answering].Take(n, m.waitUntil(m.got)) {
		return BusyProblem()
	}
	m.got += n
	return nil
}

// Reserve adds n bytes to the answer's need, and takes the missing part. If there is not enough, it
// takes nothing and returns the problem.
func (m *Request) Reserve(n int64) *wire.Problem {
	need := m.need + n
	if missing := need - OwnBytes - m.got; missing > 0 {
		each := m.budget.Conns.Accounts[Answering].Each
		if need-OwnBytes > each {
			return &wire.Problem{Kind: wire.TooLarge,
				Detail: fmt.Sprintf("it takes more than the %d KiB that one address may use "+
					"here for a request and its answer, by --max-memory; ask for it in parts",
					each>>10)}
		}
		step := (missing + memoryStep - 1) / memoryStep * memoryStep
		if p := m.takeForAnswer(min(step, each-m.got)); p != nil {
			return p
		}
	}
	m.need = need
	return nil
}

// ReturnUnused gives back bytes that were expected but are not needed.
func (m *Request) ReturnUnused() {
	if rest := m.got - max(0, m.need); rest > 0 {
		m.client.Shares[Answering].Release(rest)
		m.got -= rest
	}
}

// ReserveUpTo is like Reserve, for memory that is in use already and may have been accounted for.
func (m *Request) ReserveUpTo(n int64) *wire.Problem {
	if n <= m.need {
		return nil
	}
	return m.Reserve(n - m.need)
}

// ReservePage reserves n bytes for a metrics page.
func (m *Request) ReservePage(n int64) *wire.Problem {
	if !m.client.Shares[pages].Take(n, m.waitUntil(0)) {
		return BusyProblem()
	}
	m.paged = n
	return nil
}

// Buffer returns a buffer for a body of n bytes, which have been taken with ReserveRead.
func (m *Request) Buffer(n int) []byte {
	if n > PooledBody {
		return make([]byte, n)
	}
	m.body = m.budget.bodies.Get().(*[PooledBody]byte)
	return m.body[:n]
}

// OnRelease calls last when the answer is written.
func (m *Request) OnRelease(last func()) { m.last = last }

// ReserveServing takes the memory for serving a connection.
func (m *Request) ReserveServing() bool {
	by := time.Now().Add(m.wait / 4) // nothing was read that states the sender's patience
	ok := m.client.Shares[Awake].Take(awakeBytes, by)
	if ok {
		m.budget.served.Add(1)
	}
	return ok
}

// ReleaseServing gives back the memory for serving a connection.
func (m *Request) ReleaseServing() {
	m.budget.served.Add(-1)
	m.client.Shares[Awake].Release(awakeBytes)
}

// Release gives back everything except the memory that ReserveServing took. Nothing reads or writes
// it any more.
func (m *Request) Release() {
	if m.body != nil {
		m.budget.bodies.Put(m.body)
		m.body = nil
	}
	if m.last != nil {
		m.last()
		m.last = nil
	}
	if m.read > 0 {
		m.readingShare().Release(m.read)
	}
	if m.paged > 0 {
		m.client.Shares[pages].Release(m.paged)
	}
	m.need, m.read, m.paged, m.node, m.patience = 0, 0, 0, nil, 0
	m.ReturnUnused()
}
