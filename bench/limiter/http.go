package limiter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/load"
)

// HTTP is twotier as its users see it: one POST /v1/acquire for one decision, or one quiet POST
// /v1/batch for many. It asks several nodes in turn, whichever owns the key.
type HTTP struct {
	name   string
	nodes  []*load.Client
	next   atomic.Uint32
	bodies sync.Pool // of *[]byte
}

const (
	// conns bounds the connections to one node. It is more than any driver uses at a time.
	conns = 512
	// callTimeout is far more than a working server needs.
	callTimeout = 30 * time.Second
)

// NewHTTP returns an adapter for the servers at these addresses, each host:port.
func NewHTTP(name string, addrs ...string) (*HTTP, error) {
	h := &HTTP{name: name, bodies: sync.Pool{New: func() any { return new([]byte) }}}
	for _, addr := range addrs {
		c, err := load.NewClient(load.ClientOptions{URL: "http://" + addr, Connections: conns,
			Timeout: callTimeout})
		if err != nil {
			return nil, err
		}
		h.nodes = append(h.nodes, c)
	}
	return h, nil
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

// Decide sends one request: an acquire, or a batch of at most 10,000. Any status other than 200 is
// an error.
func (h *HTTP) Decide(_ context.Context, calls []Call) (admitted int, err error) {
	if len(calls) > 1 {
		return h.batch(calls)
	}
	err = h.post("/v1/acquire", func(body []byte) []byte {
		return append(appendChecks(append(body, '{'), calls[0]), '}')
	}, func(answer []byte) error {
		switch {
		case bytes.HasPrefix(answer, []byte(`{"allowed":true`)):
			admitted = 1
		case !bytes.HasPrefix(answer, []byte(`{"allowed":false`)):
			return fmt.Errorf("answer says nothing about allowed: %.300s", answer)
		}
		return nil
	})
	return admitted, err
}

func (h *HTTP) batch(calls []Call) (admitted int, err error) {
	err = h.post("/v1/batch", func(body []byte) []byte {
		body = append(body, `{"quiet":true,"ops":[`...)
		for i, c := range calls {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(appendChecks(append(body, `{"op":"acquire",`...), c), '}')
		}
		return append(body, "]}"...)
	}, func(answer []byte) error {
		if !bytes.Contains(answer, []byte(`"errors":[]`)) {
			return fmt.Errorf("batch: %.300s", answer)
		}
		count := answer[bytes.LastIndex(answer, []byte(`"allowed":`))+len(`"allowed":`):]
		digits := len(count) - len(bytes.TrimLeft(count, "0123456789"))
		admitted, err = strconv.Atoi(string(count[:digits]))
		return err
	})
	return admitted, err
}

// post builds a body, sends it to the next node, and passes the answer to read.
func (h *HTTP) post(path string, build func([]byte) []byte, read func([]byte) error) error {
	body := h.bodies.Get().(*[]byte)
	defer h.bodies.Put(body)
	*body = build((*body)[:0])
	err := h.nodes[int(h.next.Add(1))%len(h.nodes)].Post(path, *body, read)
	var status *load.StatusError
	if errors.As(err, &status) {
		return fmt.Errorf("%s: %w: %s", path, err, status.Body)
	}
	return err
}

// appendChecks appends the fields of an acquire. A single check is written without its list.
func appendChecks(b []byte, call Call) []byte {
	checks := call.Checks
	b = strconv.AppendInt(append(b, `"ts":`...), call.TS, 10)
	if len(checks) == 1 {
		return appendCheck(append(b, ','), checks[0])
	}
	b = append(b, `,"checks":[`...)
	for i, c := range checks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendCheck(append(b, '{'), c), '}')
	}
	return append(b, ']')
}

func appendCheck(b []byte, c Check) []byte {
	b = append(append(append(b, `"key":"`...), c.Key...), `","n":`...)
	b = append(strconv.AppendInt(b, c.N, 10), `,"limits":[`...)
	for i, l := range c.Limits {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"window":"`...), l.Window, 10)
		b = strconv.AppendInt(append(b, `ms","max":`...), l.Max, 10)
		b = append(b, '}')
	}
	return append(b, ']')
}
