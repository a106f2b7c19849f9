package httpapi

import (
	"fmt"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	// ownBytes is what an answer may use without taking from the allowance. That is about as much
	// as the connection takes anyway. Ordinary requests, of one operation, need no more, so they
	// are served no matter how much others have taken.
	ownBytes = 8 << 10
	// holdStep is the unit in which memory is taken.
	holdStep = 16 << 10
	// pooledBody is the size of the body buffers that are reused. Larger buffers are not kept.
	pooledBody = 64 << 10
)

// hold is the memory that one connection has taken for the request in progress, from its header
// until the answer is written or the connection is gone. It belongs to the goroutine that serves
// the connection. A nil hold, for a request without a connection, is unlimited.
type hold struct {
	allowance *allowance
	client    *client
	wait      time.Duration // how long to wait for memory
	bodies    *sync.Pool    // of *[pooledBody]byte

	node      *account // account for reading a message of another node; nil otherwise
	read      int64    // bytes taken for reading
	need, got int64    // bytes that the answer needs, and bytes taken for it
	paged     int64    // bytes taken for a metrics page, from an account of its own

	body *[pooledBody]byte // returned to bodies by release
	last func()            // called by release
}

// holdOf returns the hold of the connection that a request came on.
func holdOf(ctx *fasthttp.RequestCtx) *hold {
	if c, ok := ctx.Conn().(*conn); ok {
		return &c.hold
	}
	return nil
}

// busy is the problem of a request that can't get memory now. Nothing of it has been done.
func busy() *problem {
	return &problem{kind: kindUnavailable,
		detail: "too much is being read and answered at this moment; nothing was done"}
}

// reading returns the account and share for reading.
func (h *hold) reading() (*account, *share) {
	if h.node != nil {
		return h.node, &h.node.sole
	}
	return &h.allowance.reading, &h.client.reading
}

// ofNode says that the body is a message of another node.
func (h *hold) ofNode(from *account) {
	if h != nil {
		h.node = from
	}
}

// toRead takes n bytes for reading.
func (h *hold) toRead(n int64) *problem {
	if h == nil {
		return nil
	}
	from, as := h.reading()
	if h.read+n > from.each { // waiting would not help
		return &problem{kind: kindTooLarge,
			detail: "more than this node can read of one address at once; send it in parts"}
	}
	if !from.take(as, n, h.patience(h.read)) {
		return busy()
	}
	h.read += n
	return nil
}

// patience returns how long to wait for memory. A request that has some already does not wait,
// because others may be waiting for what it has.
func (h *hold) patience(has int64) time.Time {
	if has > 0 {
		return time.Time{}
	}
	return time.Now().Add(h.wait)
}

// expect takes n bytes for the answer, but at most what a client may have, before the actual need
// is known.
func (h *hold) expect(n int64) *problem {
	if h == nil || n <= ownBytes {
		return nil
	}
	return h.get(min(n, h.allowance.answering.each))
}

// get takes n bytes for the answer.
func (h *hold) get(n int64) *problem {
	if !h.allowance.answering.take(&h.client.answering, n, h.patience(h.got)) {
		return busy()
	}
	h.got += n
	return nil
}

// take adds n bytes to what the answer needs, and takes what is missing. If there is not enough, it
// takes nothing and returns the problem.
func (h *hold) take(n int64) *problem {
	if h == nil {
		return nil
	}
	need := h.need + n
	if missing := need - ownBytes - h.got; missing > 0 {
		each := h.allowance.answering.each
		if need-ownBytes > each {
			return &problem{kind: kindTooLarge, detail: fmt.Sprintf("it takes more than the %d "+
				"KiB that one address may use here for a request and its answer, by --max-memory; "+
				"ask for it in parts", each>>10)}
		}
		if p := h.get(min((missing+holdStep-1)/holdStep*holdStep, each-h.got)); p != nil {
			return p
		}
	}
	h.need = need
	return nil
}

// settle gives back bytes that were expected but are not needed.
func (h *hold) settle() {
	if h == nil {
		return
	}
	if rest := h.got - max(0, h.need); rest > 0 {
		h.allowance.answering.give(&h.client.answering, rest)
		h.got -= rest
	}
}

// cover is like take, for memory that is in use already and may have been accounted for.
func (h *hold) cover(n int64) *problem {
	if h == nil || n <= h.need {
		return nil
	}
	return h.take(n - h.need)
}

// page takes n bytes for a metrics page.
func (h *hold) page(n int64) *problem {
	if h == nil {
		return nil
	}
	if !h.allowance.pages.take(&h.client.pages, n, h.patience(0)) {
		return busy()
	}
	h.paged = n
	return nil
}

// buffer returns a buffer for a body of n bytes, which have been taken with toRead.
func (h *hold) buffer(n int) []byte {
	if h == nil || n > pooledBody {
		return make([]byte, n)
	}
	h.body = h.bodies.Get().(*[pooledBody]byte)
	return h.body[:n]
}

// until calls last when the answer is written. It reports false if there is no connection to do so.
func (h *hold) until(last func()) bool {
	if h == nil {
		return false
	}
	h.last = last
	return true
}

// wake takes the memory for serving a connection.
func (h *hold) wake() bool {
	ok := h.allowance.awake.take(&h.client.awake, awakeBytes, h.patience(0))
	if ok {
		h.allowance.served.Add(1)
	}
	return ok
}

// sleep gives back the memory for serving a connection.
func (h *hold) sleep() {
	h.allowance.served.Add(-1)
	h.allowance.awake.give(&h.client.awake, awakeBytes)
}

// release gives back everything except the memory that wake took. Nothing reads or writes it any
// more.
func (h *hold) release() {
	if h.body != nil {
		h.bodies.Put(h.body)
		h.body = nil
	}
	if h.last != nil {
		h.last()
		h.last = nil
	}
	if h.read > 0 {
		from, as := h.reading()
		from.give(as, h.read)
	}
	if h.paged > 0 {
		h.allowance.pages.give(&h.client.pages, h.paged)
	}
	h.need, h.read, h.paged, h.node = 0, 0, 0, nil
	h.settle()
}
