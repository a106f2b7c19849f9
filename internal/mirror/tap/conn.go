package tap

import (
	"bytes"
	"errors"
	"strings"
	"sync"

	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/mirror"
)

// The bytes of the calls that wait for their replies, of all connections and of each of them. The
// verdicts of more calls are dropped.
const (
	maxCalls     = 32 << 20
	maxCallsEach = 2 << 20
)

// The errors that end the reading of a connection.
var (
	errCommand = errors.New("the replies to this command can't be counted")
	errReply   = errors.New("a reply without a command")
)

// call is a call of the old limiter whose reply is to come.
type call struct {
	unknown string // the SHA-1 of a script that may be the old limiter's; then there is no mapping
	mapping *Mapping
	verdict mirror.Verdict
	argv    [][]byte
	bytes   int64 // that it occupies, approximately
}

// expected is a reply of interest to come, after others.
type expected struct {
	before int   // replies of no interest before it
	call   *call // nil for EXEC
	// queued are the calls whose replies are among the size elements of the reply to EXEC.
	queued []queuedCall
	size   int
}

// queuedCall is a call in a transaction, and its position among the commands.
type queuedCall struct {
	at   int
	call *call
}

// reading is the state of a tap about one connection. It keeps calls, and counts other commands.
type reading struct {
	tap      *Tap
	requests scanner
	replies  scanner

	mu      sync.Mutex
	over    bool // it is forwarded without reading
	list    []expected
	after   int // replies of no interest after those in list
	inMulti bool
	queued  []queuedCall // since MULTI
	size    int          // commands since MULTI
	held    int64        // bytes of the calls in list and queued
	share   *listener.Share
}

func newReading(t *Tap) *reading {
	r := &reading{tap: t, share: t.calls.NewShare()}
	r.requests.emit = r.recordCommand
	r.replies.emit = r.recordReply
	return r
}

// read reads bytes in one direction, before they are forwarded: a reply can't arrive before its
// command has been read.
func (r *reading) read(s *scanner, b []byte) {
	if err := r.scan(s, b); err != nil {
		r.tap.opt.Logger.Info("a connection to Redis is passed on without reading", "because", err)
	}
}

// scan scans bytes unless the reading is over. An error ends it.
func (r *reading) scan(s *scanner, b []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return nil
	}
	err := s.scan(b)
	if err != nil {
		r.endLocked()
	}
	return err
}

func (r *reading) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked()
}

func (r *reading) endLocked() {
	r.share.Release(r.held)
	r.over, r.list, r.queued, r.held = true, nil, nil, 0
	r.requests, r.replies = scanner{}, scanner{}
}

// recordCommand expects the reply to a command.
func (r *reading) recordCommand(v *value, long bool) error {
	if v.kind != '*' {
		return errForm
	}
	if long {
		r.expect(nil)
		return nil
	}
	words := make([][]byte, len(v.elems))
	for i, e := range v.elems {
		if e.kind != '$' {
			return errForm
		}
		words[i] = e.text
	}
	if len(words) == 0 {
		return nil // Redis ignores it
	}
	switch strings.ToUpper(string(words[0])) {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE",
		"MONITOR", "SYNC", "PSYNC":
		return errCommand
	case "CLIENT":
		if len(words) > 1 && bytes.EqualFold(words[1], []byte("REPLY")) {
			return errCommand
		}
	case "MULTI":
		r.endTransaction(expected{})
		r.inMulti = true
		return nil
	case "EXEC":
		r.endTransaction(expected{queued: r.queued, size: r.size})
		return nil
	case "DISCARD", "RESET":
		for i := range r.queued {
			r.forget(r.queued[i].call)
		}
		r.endTransaction(expected{})
		return nil
	}
	r.expect(r.keep(r.tap.recognize(words), words))
	return nil
}

// keep returns a call that waits for its reply, or nil if there is none, or no room: its verdict is
// dropped then.
func (r *reading) keep(c *call, words [][]byte) *call {
	if c == nil {
		return nil
	}
	const fixed, perWord = 160, 40
	c.bytes = fixed + c.verdict.Size()
	for _, word := range words {
		c.bytes += perWord + int64(len(word))
	}
	if r.share.TryTake(c.bytes) {
		r.held += c.bytes
		return c
	}
	if c.mapping != nil {
		r.tap.opt.Mirror.Drop([]mirror.Verdict{c.verdict})
	}
	return nil
}

// forget accounts for a call that is no longer kept.
func (r *reading) forget(c *call) {
	r.share.Release(c.bytes)
	r.held -= c.bytes
}

// endTransaction expects a reply to a command that is not queued.
func (r *reading) endTransaction(e expected) {
	r.inMulti, r.queued, r.size = false, nil, 0
	r.push(e)
}

// expect expects a reply to a command, which in a transaction is QUEUED.
func (r *reading) expect(c *call) {
	if r.inMulti {
		if c != nil {
			r.queued = append(r.queued, queuedCall{r.size, c})
		}
		r.size++
		c = nil
	}
	r.push(expected{call: c})
}

// push adds a reply to come, and only counts it if it is of no interest.
func (r *reading) push(e expected) {
	if e.call == nil && len(e.queued) == 0 {
		r.after++
		return
	}
	e.before, r.after = r.after, 0
	r.list = append(r.list, e)
}

// recordReply finds the command of a reply.
func (r *reading) recordReply(v *value, long bool) error {
	switch {
	case v.kind == '>': // a push
	case len(r.list) > 0 && r.list[0].before > 0:
		r.list[0].before--
	case len(r.list) > 0:
		e := r.list[0]
		r.list[0] = expected{}
		if r.list = r.list[1:]; len(r.list) == 0 {
			r.list = nil
		}
		r.conclude(&e, v, long)
	case r.after > 0:
		r.after--
	default:
		return errReply
	}
	return nil
}

// conclude reads the verdicts in a reply. A long one has none.
func (r *reading) conclude(e *expected, v *value, long bool) {
	if e.call != nil {
		r.forget(e.call)
		if !long {
			r.tap.conclude(e.call, v)
		}
		return
	}
	executed := !long && v.kind == '*' && len(v.elems) == e.size
	for _, q := range e.queued {
		r.forget(q.call)
		if executed {
			r.tap.conclude(q.call, v.elems[q.at])
		}
	}
}

// recognize returns the call of a limiter, or nil if the command is none.
func (t *Tap) recognize(words [][]byte) *call {
	m, keys, argv := t.find(words)
	if m == nil {
		if sha := t.unknownScript(words); sha != "" {
			return &call{unknown: sha}
		}
		return nil
	}
	v, err := m.verdict(keys, argv, t.opt.Now())
	if err != nil {
		t.opt.Mirror.RecordInvalid(err)
		return nil
	}
	if m.strip != "" {
		key, _ := m.key.value(keys, argv) // a verdict has one
		t.opt.Mirror.RecordStrip(m.strip, key, strings.HasPrefix(key, m.strip))
	}
	return &call{mapping: m, verdict: v, argv: argv}
}

// conclude reads the verdict from the reply to a call, and passes it on to be compared.
func (t *Tap) conclude(c *call, reply *value) {
	if reply.kind == '-' || reply.kind == '!' {
		return // no verdict, such as NOSCRIPT
	}
	if c.unknown != "" {
		t.opt.Mirror.RecordUnknown(c.unknown)
		return
	}
	allowed, err := c.mapping.allowed.holds(reply, c.argv)
	if err != nil {
		t.opt.Mirror.RecordInvalid(err)
		return
	}
	c.verdict.Allowed = allowed
	t.opt.Mirror.Accept([]mirror.Verdict{c.verdict})
}
