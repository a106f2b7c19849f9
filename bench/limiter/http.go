package limiter

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// HTTP is twotier as its users see it: one POST /v1/acquire for a decision, or one quiet POST /v1/batch for many. Of several
// nodes it asks one after the other, whoever owns the key.
type HTTP struct {
	name  string
	nodes []*fasthttp.HostClient
	next  atomic.Uint32
	// bodies are []byte of requests.
	bodies sync.Pool
}

// conns is the most connections to one node: above what any driver asks for at a time.
const conns = 512

// callTimeout is far above anything that a working server needs.
const callTimeout = 10 * time.Second

// NewHTTP returns an adapter for the servers at these host and ports.
func NewHTTP(name string, addrs ...string) *HTTP {
	h := &HTTP{name: name, bodies: sync.Pool{New: func() any { return new([]byte) }}}
	for _, addr := range addrs {
		h.nodes = append(h.nodes, &fasthttp.HostClient{
			Addr: addr, MaxConns: conns, ReadTimeout: callTimeout, WriteTimeout: callTimeout,
			NoDefaultUserAgentHeader: true, DisableHeaderNamesNormalizing: true, ReadBufferSize: 16 << 10,
			// A request that is sent twice is counted twice.
			MaxIdemponentCallAttempts: 1,
			RetryIfErr:                func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
		})
	}
	return h
}

// Close closes the connections.
func (h *HTTP) Close() error {
	for _, n := range h.nodes {
		n.CloseIdleConnections()
	}
	return nil
}

// Name is how tables call it.
func (h *HTTP) Name() string { return h.name }

// AcquireAll sends one request. Any answer but 200 is an error.
func (h *HTTP) AcquireAll(_ context.Context, checks []Check, ts int64) (allowed bool, err error) {
	err = h.post("/v1/acquire", func(body []byte) []byte {
		return append(appendChecks(append(body, '{'), checks, ts), '}')
	}, func(answer []byte) error {
		switch {
		case bytes.HasPrefix(answer, []byte(`{"allowed":true`)):
			allowed = true
		case !bytes.HasPrefix(answer, []byte(`{"allowed":false`)):
			return fmt.Errorf("answer says nothing about allowed: %.300s", answer)
		}
		return nil
	})
	return allowed, err
}

// AcquireEach sends one batch of at most 10,000.
func (h *HTTP) AcquireEach(_ context.Context, calls []Call) (admitted int, err error) {
	err = h.post("/v1/batch", func(body []byte) []byte {
		body = append(body, `{"quiet":true,"ops":[`...)
		for i, c := range calls {
			if i > 0 {
				body = append(body, ',')
			}
			body = appendChecks(append(body, `{"op":"acquire",`...), c.Checks, c.TS)
			body = append(body, '}')
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

// post sends the body that is built to the next node and has the answer read.
func (h *HTTP) post(path string, build func([]byte) []byte, read func([]byte) error) error {
	node := h.nodes[int(h.next.Add(1))%len(h.nodes)]
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.SetRequestURI("http://" + node.Addr + path)
	req.Header.SetContentType("application/json")
	body := h.bodies.Get().(*[]byte)
	defer h.bodies.Put(body)
	*body = build((*body)[:0])
	req.SetBodyRaw(*body)
	if err := node.Do(req, resp); err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	if resp.StatusCode() != fasthttp.StatusOK {
		return fmt.Errorf("acquire: status %d: %.300s", resp.StatusCode(), resp.Body())
	}
	if err := read(resp.Body()); err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	return nil
}

// appendChecks appends the fields of an acquire. A single check is written without its list.
func appendChecks(b []byte, checks []Check, ts int64) []byte {
	b = strconv.AppendInt(append(b, `"ts":`...), ts, 10)
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
