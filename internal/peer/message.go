package peer

import (
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// The version of the format of messages.
const version = 2

// The kinds of message.
const (
	kindTasks byte = iota
	kindQuestion
)

// The states of a reply.
const (
	replyDone byte = iota
	// replyStale: the lane has gone on, and the message is an old copy.
	replyStale
	// replyStranger: the message is for another process than this one.
	replyStranger
	// replyBusy: the node can't take it now, and has done nothing with it.
	replyBusy
	// replyUnderWay: an earlier copy is being carried out at this moment.
	replyUnderWay
	// replyLate: it came after its time was up. It has not been carried out, and no copy of it will
	// be.
	replyLate
)

// message is a request of one process to another. From and To are names of processes.
type message struct {
	From, To string
	Lane     uint32
	Seq      uint64
	Kind     byte
	// Budget is how long the sender will wait for what it asks, from when it sends it.
	Budget time.Duration
	// Until is when that ends by the clock of the receiver, as far as the sender knows it; 0 if it
	// does not. A message may have been on its way for longer than its budget, which the receiver
	// could not know otherwise.
	Until time.Duration
	Body  []byte
}

// minBudget is the least time that a message is sent with: with less the answer would come too
// late.
const minBudget = 5 * time.Millisecond

// remaining is how long a message that is read when the receiver's clock shows now may take;
// nothing if its time is up.
func (m *message) remaining(now time.Duration) time.Duration {
	if m.Until == 0 {
		return m.Budget
	}
	return min(m.Budget, m.Until-now)
}

// append appends the message, sealed if there is a key. The outside of a message is its version and
// sender, which tell what key it is sealed with.
func (m *message) append(b []byte, key cipher.AEAD, c *counter) []byte {
	b = appendBytes(append(b, version), m.From)
	text := make([]byte, 0, len(m.Body)+len(m.To)+32)
	text = appendBytes(text, m.To)
	text = binary.AppendUvarint(text, uint64(m.Lane))
	text = binary.AppendUvarint(text, m.Seq)
	text = binary.AppendUvarint(text, uint64(m.Budget/time.Microsecond))
	text = binary.AppendUvarint(text, uint64(m.Until/time.Microsecond))
	text = append(append(text, m.Kind), m.Body...)
	return c.seal(key, b, text, nil)
}

// sender reads the outside of a message.
func sender(b []byte) (from string, rest []byte, err error) {
	r := reader{b: b}
	if v := r.byte(); r.err == nil && v != version {
		return "", nil, fmt.Errorf("message of version %d, this node speaks %d", v, version)
	}
	from = r.processName()
	return from, r.b, r.err
}

// maxName bounds the name of a process, which is kept before it is known whether it is one of ours.
const maxName = 256

// processName reads the name on the outside of a message.
func (r *reader) processName() string {
	name := r.bytes()
	if len(name) > maxName {
		r.fail()
		return ""
	}
	return string(name)
}

// parse reads the inside of a message.
func (m *message) parse(text []byte) error {
	r := reader{b: text}
	m.To, m.Lane, m.Seq = r.string(), uint32(r.uint()), r.uint()
	m.Budget = time.Duration(min(r.uint(), uint64(maxBudget/time.Microsecond))) * time.Microsecond
	m.Until = time.Duration(min(r.uint(), maxUntil)) * time.Microsecond
	m.Kind, m.Body = r.byte(), r.b
	return r.err
}

// maxBudget bounds what a message may ask for, and maxUntil, in microseconds, is the last that a
// clock can show.
const (
	maxBudget = time.Minute
	maxUntil  = uint64(math.MaxInt64 / time.Microsecond)
)
