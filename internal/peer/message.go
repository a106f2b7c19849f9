package peer

import (
	"crypto/cipher"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier/internal/elapsed"
)

// version is the version of the message format.
const version = 8

// The kinds of message.
const (
	kindTasks byte = iota
	kindRequest
	// kindTracedRequest is a request that is part of a trace; the trace's context precedes it.
	kindTracedRequest
)

// The status codes of a reply.
const (
	replyDone byte = iota
	// replyStale: the message is an old copy; its worker has gone on.
	replyStale
	// replyStranger: the message is meant for another process.
	replyStranger
	// replyBusy: the node can't accept the message now, and has done nothing with it.
	replyBusy
	// replyUnderWay: an earlier copy is still being executed.
	replyUnderWay
	// replyLate: the message came after its deadline. Neither it nor any copy of it has been or
	// will be executed.
	replyLate
)

// message is a request from one process to another. From and To are names of processes.
type message struct {
	From, To string
	Worker   uint32
	Seq      uint64
	Kind     byte
	// Budget is how long the sender waits for the answer after sending.
	Budget time.Duration
	// Until is the deadline by the clock of the receiver; 0 if the sender has not read that clock.
	// Without it, the receiver could not detect a message that has been under way for longer than
	// its budget.
	Until time.Duration
	Body  []byte
}

// minBudget is the least remaining time with which a message is sent: with less, the answer would
// come too late.
const minBudget = 5 * time.Millisecond

// remaining returns how long a message may still take if the receiver's clock shows now. It is not
// positive if the deadline has passed.
func (m *message) remaining(now time.Duration) time.Duration {
	if m.Until == 0 {
		return m.Budget
	}
	return min(m.Budget, m.Until-now)
}

// append appends the message, sealed if there is a key. Version and sender stay readable, because
// they determine the key.
func (m *message) append(b []byte, key cipher.AEAD, c *sealCounter) []byte {
	b = slices.Grow(b, len(m.From)+len(m.To)+len(m.Body)+messageHead)
	b = c.appendNumber(key, appendBytes(append(b, version), m.From))
	start := len(b)
	b = appendBytes(b, m.To)
	b = appendUint(b, uint64(m.Worker))
	b = appendUint(b, m.Seq)
	b = appendUint(b, uint64(m.Budget/time.Microsecond))
	b = appendUint(b, uint64(m.Until/time.Microsecond))
	b = append(append(b, m.Kind), m.Body...)
	return seal(key, b, start, nil)
}

// messageHead bounds the size of a message without names and body.
const messageHead = 64 + overhead

// readSender reads the unsealed part of a message.
func readSender(b []byte) (from string, rest []byte, err error) {
	r := reader{b: b}
	if v := r.byte(); r.err == nil && v != version {
		return "", nil, fmt.Errorf("message of version %d, this node speaks %d", v, version)
	}
	from = r.processName()
	return from, r.b, r.err
}

// maxName bounds the name of a process, which is stored before the message has been authenticated.
const maxName = 256

// processName reads the sender's name from the unsealed part.
func (r *reader) processName() string {
	name := r.bytes()
	if len(name) > maxName {
		r.fail()
		return ""
	}
	return string(name)
}

// parse reads the sealed part of a message, once it is decrypted.
func (m *message) parse(text []byte) error {
	r := reader{b: text}
	m.To, m.Worker, m.Seq = r.string(), uint32(r.uint()), r.uint()
	m.Budget = time.Duration(min(r.uint(), uint64(maxBudget/time.Microsecond))) * time.Microsecond
	m.Until = time.Duration(min(r.uint(), maxUntil)) * time.Microsecond
	m.Kind, m.Body = r.byte(), r.b
	return r.err
}

// maxBudget caps the budget of a message. maxUntil, in microseconds, is the last time that a clock
// can show.
const (
	maxBudget = time.Minute
	maxUntil  = uint64(math.MaxInt64 / time.Microsecond)
)

// sampleAge is how long the best reading of another process's clock is kept although newer readings
// come in.
const sampleAge = 10 * time.Second

// clockOffset estimates how far the clock of another process is ahead of this one's, as a lower
// bound: a reply carries the other clock's time from before the reply arrived.
type clockOffset struct {
	own *elapsed.Clock

	mu    sync.Mutex
	known bool
	least time.Duration
	at    time.Duration // when least was read
}

// recordReply records the other clock's time in a reply that has just arrived. The quickest reply
// gives the tightest bound. It is replaced after sampleAge, because clocks drift apart.
func (a *clockOffset) recordReply(theirs time.Duration) {
	now := a.own.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if least := theirs - now; !a.known || least > a.least || now-a.at > sampleAge {
		a.known, a.least, a.at = true, least, now
	}
}

// offsetKnown reports whether the other clock has been read.
func (a *clockOffset) offsetKnown() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

// deadlineIn returns the other clock's time, or slightly less, at the end of a budget. It returns 0
// if the other clock has not been read.
func (a *clockOffset) deadlineIn(budget time.Duration) time.Duration {
	now := a.own.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known {
		return 0
	}
	return max(now+budget+a.least, time.Microsecond)
}
