package limiter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/wire"
)

// HTTP is twotier's HTTP API: one POST /v1/acquire for one decision, or one quiet POST /v1/batch
// for many, and adds in the same way. It calls several nodes in turn, whichever owns the key.
type HTTP struct {
	name   string
	nodes  []*wire.Client
	next   atomic.Uint32
	limits atomic.Pointer[[]prepared]
}

// NewHTTP returns an adapter for the servers at these addresses, each host:port.
func NewHTTP(name string, addrs ...string) *HTTP {
	h := &HTTP{name: name}
	h.limits.Store(new([]prepared))
	for _, addr := range addrs {
		h.nodes = append(h.nodes, wire.NewClient(addr))
	}
	return h
}

// Close closes the connections.
func (h *HTTP) Close() error {
	for _, n := range h.nodes {
		n.Close()
	}
	return nil
}

// Name returns the name in tables.
func (h *HTTP) Name() string { return h.name }

// Decide sends one request: an operation, or a batch of at most 10,000. An add counts as admitted,
// and has the server's time if its own is 0. Any status other than 200 is an error.
func (h *HTTP) Decide(_ context.Context, calls []Call) (admitted int, err error) {
	node := h.nodes[int(h.next.Add(1))%len(h.nodes)]
	if len(calls) > 1 {
		err = node.Post("/v1/batch", func(b []byte) []byte { return h.appendBatch(b, calls) },
			func(answer []byte) error {
				admitted, err = readBatch(answer)
				return err
			})
		return admitted, err
	}
	path, read := "/v1/acquire", readAcquire
	if calls[0].Kind == twotier.Add {
		path, read = "/v1/add", readAdd
	}
	err = node.Post(path, func(b []byte) []byte {
		return append(h.appendCall(append(b, '{'), &calls[0]), '}')
	}, func(answer []byte) error {
		admitted, err = read(answer)
		return err
	})
	return admitted, err
}

// The answers are read without parsing them, in the form that twotier writes.
// TestDecideReadsWhatTheAnswersSay (package rival) compares the results with encoding/json.

func readAcquire(answer []byte) (admitted int, err error) {
	switch {
	case bytes.HasPrefix(answer, []byte(`{"allowed":true`)):
		return 1, nil
	case bytes.HasPrefix(answer, []byte(`{"allowed":false`)):
		return 0, nil
	}
	return 0, fmt.Errorf("answer has no field allowed: %.300s", answer)
}

func readAdd(answer []byte) (admitted int, err error) {
	if !bytes.HasPrefix(answer, []byte(`{"key":`)) {
		return 0, fmt.Errorf("answer has no field key: %.300s", answer)
	}
	return 1, nil
}

// readBatch reads the totals, which follow the errors.
func readBatch(answer []byte) (admitted int, err error) {
	_, totals, _ := bytes.Cut(answer, []byte(`"errors":[],"added":`))
	added, totals, _ := bytes.Cut(totals, []byte(`,"allowed":`))
	allowed, _, _ := bytes.Cut(totals, []byte(`,"refused":`))
	adds, err1 := strconv.Atoi(string(added))
	acquires, err2 := strconv.Atoi(string(allowed))
	if errors.Join(err1, err2) != nil {
		return 0, fmt.Errorf("batch: %.300s", answer)
	}
	return adds + acquires, nil
}

func (h *HTTP) appendBatch(b []byte, calls []Call) []byte {
	b = append(b, `{"quiet":true,"ops":[`...)
	for i := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		if calls[i].Kind == twotier.Add {
			b = append(b, `{"op":"add",`...)
		} else {
			b = append(b, `{"op":"acquire",`...)
		}
		b = append(h.appendCall(b, &calls[i]), '}')
	}
	return append(b, "]}"...)
}

// appendCall appends the fields of an operation. A single check is written without its list.
func (h *HTTP) appendCall(b []byte, call *Call) []byte {
	if call.TS != 0 {
		b = append(strconv.AppendInt(append(b, `"ts":`...), call.TS, 10), ',')
	}
	if len(call.Checks) == 1 {
		return h.appendCheck(b, &call.Checks[0])
	}
	b = append(b, `"checks":[`...)
	for i := range call.Checks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(h.appendCheck(append(b, '{'), &call.Checks[i]), '}')
	}
	return append(b, ']')
}

func (h *HTTP) appendCheck(b []byte, c *Check) []byte {
	b = append(append(append(b, `"key":"`...), c.Key...), '"')
	if c.N != 1 {
		b = strconv.AppendInt(append(b, `,"n":`...), c.N, 10)
	}
	if len(c.Limits) == 0 {
		return b
	}
	for _, known := range *h.limits.Load() {
		if slices.Equal(known.limits, c.Limits) {
			return append(b, known.text...)
		}
	}
	return append(b, h.prepare(c.Limits)...)
}

// prepared holds limits and their text in a request.
type prepared struct {
	limits []Limit
	text   []byte
}

// mostPrepared bounds the prepared limits: a run has a few, which it repeats.
const mostPrepared = 8

// prepare returns the text of limits, and keeps it for the next call.
func (h *HTTP) prepare(limits []Limit) []byte {
	b := []byte(`,"limits":[`)
	for i, l := range limits {
		if i > 0 {
			b = append(b, ',')
		}
		window := twotier.FormatMillis(l.Window)
		b = fmt.Appendf(b, `{"window":"%s","max":%d}`, window, l.Max)
	}
	b = append(b, ']')
	if all := h.limits.Load(); len(*all) < mostPrepared {
		more := append(slices.Clone(*all), prepared{slices.Clone(limits), b})
		h.limits.CompareAndSwap(all, &more) // or another call has prepared some
	}
	return b
}
