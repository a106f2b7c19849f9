package peer

import (
	"crypto/cipher"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/ownership"
)

// errFormat means that a message is malformed.
var errFormat = errors.New("malformed message")

// appendUint appends an unsigned number. Most numbers take one byte.
func appendUint(to []byte, v uint64) []byte {
	if v < 0x80 {
		return append(to, byte(v))
	}
	return binary.AppendUvarint(to, v)
}

// appendInt appends a signed number. Numbers near zero take one byte.
func appendInt(to []byte, v int64) []byte {
	return appendUint(to, uint64(v)<<1^uint64(v>>63))
}

// appendBytes appends b, preceded by its length.
func appendBytes[T ~[]byte | ~string](to []byte, b T) []byte {
	return append(appendUint(to, uint64(len(b))), b...)
}

// reader parses a message. After the first error it returns only zero values, and err is set.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errFormat
	}
	r.b = nil
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	return r.longUint()
}

// longUint reads a number of more than one byte.
func (r *reader) longUint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v := r.uint()
	return int64(v>>1) ^ -int64(v&1)
}

// itemCount reads a number of items that take at least one byte each.
func (r *reader) itemCount() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

// bytes returns a view into the message.
func (r *reader) bytes() []byte {
	n := r.itemCount()
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// lengthBytes is the size of a fixed-size length, which can be filled in after the content.
const lengthBytes = 4

// lengthPrefixed returns the content that follows a fixed-size length, as a view into the message.
func (r *reader) lengthPrefixed() []byte {
	if len(r.b) < lengthBytes {
		r.fail()
		return nil
	}
	n := uint64(binary.LittleEndian.Uint32(r.b))
	if r.b = r.b[lengthBytes:]; n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) string() string { return string(r.bytes()) }

// checkEnd returns an error unless everything has been read.
func (r *reader) checkEnd() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = errFormat
	}
	return r.err
}

// uint16 reads a number below 65,536.
func (r *reader) uint16() uint16 {
	v := r.uint()
	if v > math.MaxUint16 {
		r.fail()
		return 0
	}
	return uint16(v)
}

// appendRequest appends the code of the request's kind, and the request as JSON, which is fast
// enough because requests are rare.
func appendRequest(b []byte, request any) ([]byte, error) {
	kind, ok := node.KindOf(request)
	if !ok {
		return b, fmt.Errorf("%T is not a request", request)
	}
	text, err := json.Marshal(request)
	return append(append(b, kind.Code), text...), err
}

func readRequest(b []byte) (request any, err error) {
	if len(b) == 0 {
		return nil, errFormat
	}
	kind, ok := node.KindByCode(b[0])
	if !ok {
		return nil, errFormat
	}
	request = kind.New()
	return request, json.Unmarshal(b[1:], request)
}

// appendResponse appends the answer to a request, or the error in place of it. Answers are JSON,
// except a claim response, which holds the counts of a partition.
func appendResponse(b []byte, answer any, err error) []byte {
	if err == nil {
		switch a := answer.(type) {
		case nil:
			return append(b, resultOK)
		case *ownership.ClaimResponse:
			return appendClaim(append(b, resultOK), a)
		default:
			var text []byte
			if text, err = json.Marshal(a); err == nil {
				return append(append(b, resultOK), text...)
			}
		}
	}
	return appendError(b, err)
}

// readResponse reads the answer to a request into answer.
func readResponse(b []byte, answer any) error {
	r := reader{b: b}
	if code := r.byte(); r.err == nil && code != resultOK {
		err := readError(&r, code)
		if r.err == nil {
			return err
		}
	}
	if r.err != nil || answer == nil {
		return r.err
	}
	if a, ok := answer.(*ownership.ClaimResponse); ok {
		readClaim(&r, a)
		return r.checkEnd()
	}
	return json.Unmarshal(r.b, answer)
}

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
