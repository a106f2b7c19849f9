package httpapi

import (
	"fmt"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/account"
	"twotier.dev/twotier/internal/request"
)

const (
	// ownBytes is the size of an answer that takes nothing from the allowance, about as much as the
	// connection takes anyway. Ordinary requests, of one operation, need no more, so they are
	// served no matter how much others have taken.
	ownBytes = 8 << 10
	// memoryStep is the unit in which memory is taken.
	memoryStep = 16 << 10
	// pooledBody is the size of the body buffers that are reused. Larger buffers are not kept.
	pooledBody = 64 << 10
)

// requestMemory is the memory that one connection has taken for the request in progress, from its
// header until the answer is written or the connection is gone. It belongs to the goroutine that
// serves the connection. A nil requestMemory, for a request without a connection, is unlimited.
type requestMemory struct {
	allowance *allowance
	client    *client
	wait      time.Duration // how long to wait for memory
	patience  time.Duration // how long the sender waits for the answer, 0 if unknown
	bodies    *sync.Pool    // of *[pooledBody]byte

	node      *account.Account // account for reading a message of another node; nil otherwise
	read      int64            // bytes taken for reading
	need, got int64            // bytes that the answer needs, and bytes taken for it
	paged     int64            // bytes taken for a metrics page, from another account

	body *[pooledBody]byte // returned to bodies by release
	last func()            // called by release
}

// memoryOf returns the memory of the connection that a request came on.
func memoryOf(ctx *fasthttp.RequestCtx) *requestMemory {
	if c, ok := ctx.Conn().(*conn); ok {
		return &c.memory
	}
	return nil
}

// busy is the problem of a request that can't get memory now. No part of it has been executed.
func busy() *wire.Problem {
	return &wire.Problem{Kind: wire.Overload, Limit: true,
		Detail: "too much is being read and answered at this moment; nothing was done"}
}

// reading returns the account and usage for reading.
func (m *requestMemory) reading() (*account.Account, *account.Usage) {
	if m.node != nil {
		return m.node, &m.node.Sole
	}
	return &m.allowance.reading, &m.client.Usage.reading
}

// chargeNode charges the body, a message of another node, to the account from.
func (m *requestMemory) chargeNode(from *account.Account) {
	if m != nil {
		m.node = from
	}
}

// ofNode reports whether the request is a message of another node.
func (m *requestMemory) ofNode() bool { return m != nil && m.node != nil }

// takeRead takes n bytes for reading.
func (m *requestMemory) takeRead(n int64) *wire.Problem {
	if m == nil {
		return nil
	}
	from, as := m.reading()
	if m.read+n > from.Each { // waiting would not help
		return &wire.Problem{Kind: wire.TooLarge,
			Detail: "more than this node can read of one address at once; send it in parts"}
	}
	if !from.Take(as, n, m.waitUntil(m.read)) {
		return busy()
	}
	m.read += n
	return nil
}

// waitUntil returns how long to wait for memory. A request that has some already does not wait,
// because others may be waiting for its memory.
func (m *requestMemory) waitUntil(has int64) time.Time {
	if has > 0 {
		return time.Time{}
	}
	wait := m.wait
	if m.patience > 0 {
		wait = min(wait, m.patience/2)
	}
	return time.Now().Add(wait)
}

// setPatience reads how long the sender waits for the answer, in milliseconds. An overload has to
// be answered earlier: a sender that gets no answer can't distinguish it from an outage.
func (m *requestMemory) setPatience(text []byte) {
	ms, end, fits := request.Digits(text, 0)
	if m != nil && fits && end == len(text) && ms > 0 {
		m.patience = time.Duration(min(ms, time.Hour.Milliseconds())) * time.Millisecond
	}
}

// expect takes n bytes for the answer, or a client's maximum if that is less, before the actual
// need is known.
func (m *requestMemory) expect(n int64) *wire.Problem {
	if m == nil || n <= ownBytes {
		return nil
	}
	return m.get(min(n, m.allowance.answering.Each))
}

// get takes n bytes for the answer.
func (m *requestMemory) get(n int64) *wire.Problem {
	if !m.allowance.answering.Take(&m.client.Usage.answering, n, m.waitUntil(m.got)) {
		return busy()
	}
	m.got += n
	return nil
}

// Take adds n bytes to the answer's need, and takes the missing part. If there is not enough, it
// takes nothing and returns the problem.
func (m *requestMemory) Take(n int64) *wire.Problem {
	if m == nil {
		return nil
	}
	need := m.need + n
	if missing := need - ownBytes - m.got; missing > 0 {
		each := m.allowance.answering.Each
		if need-ownBytes > each {
			return &wire.Problem{Kind: wire.TooLarge,
				Detail: fmt.Sprintf("it takes more than the %d "+
					"KiB that one address may use here for a request and its answer, by --max-memory; "+
					"ask for it in parts", each>>10)}
		}
		if p := m.get(min((missing+memoryStep-1)/memoryStep*memoryStep, each-m.got)); p != nil {
			return p
		}
	}
	m.need = need
	return nil
}

// returnUnused gives back bytes that were expected but are not needed.
func (m *requestMemory) returnUnused() {
	if m == nil {
		return
	}
	if rest := m.got - max(0, m.need); rest > 0 {
		m.allowance.answering.Release(&m.client.Usage.answering, rest)
		m.got -= rest
	}
}

// takeUpTo is like Take, for memory that is in use already and may have been accounted for.
func (m *requestMemory) takeUpTo(n int64) *wire.Problem {
	if m == nil || n <= m.need {
		return nil
	}
	return m.Take(n - m.need)
}

// takePage takes n bytes for a metrics page.
func (m *requestMemory) takePage(n int64) *wire.Problem {
	if m == nil {
		return nil
	}
	if !m.allowance.pages.Take(&m.client.Usage.pages, n, m.waitUntil(0)) {
		return busy()
	}
	m.paged = n
	return nil
}

// buffer returns a buffer for a body of n bytes, which have been taken with takeRead.
func (m *requestMemory) buffer(n int) []byte {
	if m == nil || n > pooledBody {
		return make([]byte, n)
	}
	m.body = m.bodies.Get().(*[pooledBody]byte)
	return m.body[:n]
}

// onRelease calls last when the answer is written. It reports false if there is no connection to do
// so.
func (m *requestMemory) onRelease(last func()) bool {
	if m == nil {
		return false
	}
	m.last = last
	return true
}

// wake takes the memory for serving a connection.
func (m *requestMemory) wake() bool {
	by := time.Now().Add(m.wait / 4) // nothing was read that states the sender's patience
	ok := m.allowance.awake.Take(&m.client.Usage.awake, awakeBytes, by)
	if ok {
		m.allowance.served.Add(1)
	}
	return ok
}

// sleep gives back the memory for serving a connection.
func (m *requestMemory) sleep() {
	m.allowance.served.Add(-1)
	m.allowance.awake.Release(&m.client.Usage.awake, awakeBytes)
}

// release gives back everything except the memory that wake took. Nothing reads or writes it any
// more.
func (m *requestMemory) release() {
	if m.body != nil {
		m.bodies.Put(m.body)
		m.body = nil
	}
	if m.last != nil {
		m.last()
		m.last = nil
	}
	if m.read > 0 {
		from, as := m.reading()
		from.Release(as, m.read)
	}
	if m.paged > 0 {
		m.allowance.pages.Release(&m.client.Usage.pages, m.paged)
	}
	m.need, m.read, m.paged, m.node, m.patience = 0, 0, 0, nil, 0
	m.returnUnused()
}

// expected is the memory that a batch usually needs, as a multiple of the length of its body.
const expected = 24
