package tap

import (
	"bytes"
	"errors"
	"strings"
	"sync"

	"twotier.dev/twotier/internal/mirror"
)

// The commands without a reply at which a connection is no longer read: their number, and the bytes
// of the calls among them.
const (
	maxExpected      = 1 << 16
	maxExpectedBytes = 8 << 20
)

// The errors that end the reading of a connection.
var (
	errCommand = errors.New("the replies to this command can't be counted")
	errMany    = errors.New("too many commands wait for their replies")
	errReply   = errors.New("a reply without a command")
)

// call is a call of the old limiter whose reply is to come.
type call struct {
	unknown string // the SHA-1 of a script that may be the old limiter's; then there is no mapping
	mapping *Mapping
	verdict mirror.Verdict
	argv    [][]byte
	bytes   int // its length
}

// expected is a reply to come.
type expected struct {
	call *call // nil if it is of no interest
	// exec is set for EXEC: its reply contains the replies to the queued commands.
	exec   bool
	queued []*call
}

// reading is the state of a tap about one connection.
type reading struct {
	tap      *Tap
	requests scanner
	replies  scanner

	mu      sync.Mutex
	over    bool // it is forwarded without reading
	list    []expected
	inMulti bool
	queued  []*call // since MULTI
	bytes   int     // of the calls in list and queued
}

func newReading(t *Tap) *reading {
	r := &reading{tap: t}
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
		r.over, r.list, r.queued, r.bytes = true, nil, nil, 0
		r.requests, r.replies = scanner{}, scanner{}
	}
	return err
}

// recordCommand expects the reply to a command.
func (r *reading) recordCommand(v *value, long bool) error {
	if len(r.list) == maxExpected || len(r.queued) == maxExpected {
		return errMany
	}
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
		r.expectOutside(expected{})
		r.inMulti, r.queued = true, nil
		return nil
	case "EXEC":
		r.expectOutside(expected{exec: true, queued: r.queued})
		return nil
	case "DISCARD", "RESET":
		for _, c := range r.queued {
			r.forget(c)
		}
		r.expectOutside(expected{})
		return nil
	}
	c := r.tap.recognize(words)
	if c != nil {
		for _, word := range words {
			c.bytes += len(word)
		}
		if r.bytes += c.bytes; r.bytes > maxExpectedBytes {
			return errMany
		}
	}
	r.expect(c)
	return nil
}

// forget accounts for a call that is no longer kept.
func (r *reading) forget(c *call) {
	if c != nil {
		r.bytes -= c.bytes
	}
}

// expectOutside expects a reply to a command that is not queued, and ends a transaction.
func (r *reading) expectOutside(e expected) {
	r.list = append(r.list, e)
	r.inMulti, r.queued = false, nil
}

// expect expects a reply to a command, which in a transaction is QUEUED.
func (r *reading) expect(c *call) {
	if r.inMulti {
		r.queued = append(r.queued, c)
		c = nil
	}
	r.list = append(r.list, expected{call: c})
}

// recordReply finds the command of a reply.
func (r *reading) recordReply(v *value, long bool) error {
	if v.kind == '>' {
		return nil // a push
	}
	if len(r.list) == 0 {
		return errReply
	}
	e := r.list[0]
	if r.list = r.list[1:]; len(r.list) == 0 {
		r.list = nil
	}
	r.forget(e.call)
	for _, c := range e.queued {
		r.forget(c)
	}
	switch {
	case long:
	case e.call != nil:
		r.tap.conclude(e.call, v)
	case e.exec && v.kind == '*' && len(v.elems) == len(e.queued):
		for i, c := range e.queued {
			if c != nil {
				r.tap.conclude(c, v.elems[i])
			}
		}
	}
	return nil
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
