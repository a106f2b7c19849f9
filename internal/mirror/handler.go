package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/request"
)

// Verdict is one decision of the old limiter.
type Verdict struct {
	// Checks are the keys that it decided about, at least one, all or nothing.
	Checks []client.Check
	// At is the time of the decision in unix milliseconds.
	At      int64
	Allowed bool
}

// Size returns the bytes that the verdict occupies, approximately.
func (v *Verdict) Size() int64 {
	const fixed, perCheck, perLimit = 64, 160, 40
	n := fixed
	for i := range v.Checks {
		c := &v.Checks[i]
		n += perCheck + len(c.Namespace) + len(c.Key) + perLimit*(len(c.Limits)+len(c.Rules))
		for _, name := range c.Rules {
			n += len(name)
		}
	}
	return int64(n)
}

// verdictJSON is a verdict as the application sends it: an acquire with the old limiter's answer.
type verdictJSON struct {
	checkJSON
	Checks  []checkJSON `json:"checks"`
	TS      int64       `json:"ts"`
	Allowed *bool       `json:"allowed"`
}

type checkJSON struct {
	NS     string      `json:"ns"`
	Key    string      `json:"key"`
	N      *int64      `json:"n"`
	Limits []limitJSON `json:"limits"`
	Rules  []string    `json:"rules"`
}

type limitJSON struct {
	Window string `json:"window"`
	Max    int64  `json:"max"`
}

// Decode reads verdicts: JSON objects, usually one in each line. now is the time of verdicts that
// have none. Either all are valid, or the error names the field and the remedy.
func Decode(body []byte, now time.Time) (list []Verdict, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	for {
		var one verdictJSON
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		v := Verdict{At: now.UnixMilli()}
		if err == nil {
			err = v.read(&one)
		}
		if err != nil {
			return nil, fmt.Errorf("verdict %d: %s", len(list)+1,
				strings.TrimPrefix(err.Error(), "json: "))
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, errors.New(`no verdict; want {"key":"...","rules":["..."],"allowed":true}`)
	}
	return list, nil
}

func (v *Verdict) read(from *verdictJSON) error {
	switch {
	case from.Allowed == nil:
		return errors.New("allowed: missing; want the verdict of the old limiter, true or false")
	case from.TS < 0:
		return fmt.Errorf("ts: %d is not a time in unix milliseconds", from.TS)
	case from.TS > 0:
		v.At = from.TS
	}
	v.Allowed = *from.Allowed
	if len(from.Checks) == 0 {
		from.Checks = []checkJSON{from.checkJSON}
	} else if c := &from.checkJSON; c.NS != "" || c.Key != "" || c.N != nil ||
		len(c.Limits)+len(c.Rules) > 0 {
		return errors.New("checks: want either these or key, ns, n, limits and rules")
	}
	if len(from.Checks) > request.MaxChecks {
		return fmt.Errorf("checks: %d of them, want at most %d", len(from.Checks),
			request.MaxChecks)
	}
	v.Checks = make([]client.Check, len(from.Checks))
	for i := range from.Checks {
		if err := from.Checks[i].readTo(&v.Checks[i]); err != nil {
			if len(from.Checks) > 1 {
				err = fmt.Errorf("checks[%d].%w", i, err)
			}
			return err
		}
	}
	return nil
}

func (c *checkJSON) readTo(to *client.Check) error {
	if err := c.checkBounds(); err != nil {
		return err
	}
	*to = client.Check{Namespace: c.NS, Key: client.SafeKey(c.Key), N: 1, Rules: c.Rules}
	if c.N != nil {
		to.N, to.Peek = *c.N, *c.N == 0
	}
	if to.N < 0 || to.N > math.MaxInt32 {
		return fmt.Errorf("n: %d is not a number from 0 to %d", to.N, math.MaxInt32)
	}
	for i, l := range c.Limits {
		limit, err := ParseLimit(l.Window, l.Max)
		if err != nil {
			return fmt.Errorf("limits[%d].%w", i, err)
		}
		to.Limits = append(to.Limits, limit)
	}
	return nil
}

// checkBounds refuses fields that a server refuses, so that their size is bounded.
func (c *checkJSON) checkBounds() error {
	switch {
	case c.Key == "":
		return errors.New("key: missing or empty")
	case c.NS != "" && !request.ValidNS([]byte(c.NS)):
		return fmt.Errorf("ns: %q, %s", request.Clip([]byte(c.NS)), request.WantNS)
	case len(c.Limits) > request.MaxLimits:
		return fmt.Errorf("limits: %d of them, want at most %d", len(c.Limits), request.MaxLimits)
	case len(c.Rules) > request.MaxLimits:
		return fmt.Errorf("rules: %d of them, want at most %d", len(c.Rules), request.MaxLimits)
	}
	for i, name := range c.Rules {
		if len(name) > request.MaxKeyBytes {
			return fmt.Errorf("rules[%d]: %d bytes, want at most %d", i, len(name),
				request.MaxKeyBytes)
		}
	}
	return nil
}

// ParseLimit returns a limit on a window, which is a duration such as 90s or a calendar period such
// as month@Europe/Lisbon.
func ParseLimit(window string, most int64) (client.Limit, error) {
	l := client.Limit{Max: most}
	if most < 0 {
		return l, fmt.Errorf("max: %d is less than 0", most)
	}
	var err error
	if window != "" && window[0] >= 'a' {
		l.Period = window
		_, err = twotier.ParsePeriod(window)
	} else if l.Window, err = config.ParseDuration(window); err == nil &&
		(l.Window <= 0 || l.Window%time.Millisecond != 0) {
		err = errors.New("want whole milliseconds, at least 1")
	}
	if err != nil {
		return l, fmt.Errorf("window: %q is not a window, such as 90s, 24h or month: %w",
			request.Clip([]byte(window)), err)
	}
	return l, nil
}

// maxBody is the longest body of a request, in bytes.
const maxBody = 1 << 20

// Handler returns the HTTP interface: POST / accepts verdicts and answers 202 at once, GET /
// returns the [Report] as JSON, and GET /text for people. Errors are problems of RFC 9457. It
// answers only requests to hosts that the check allows.
func (m *Mirror) Handler(hosts hostname.Check) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", m.accept)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "application/json", m.Report())
	})
	mux.HandleFunc("GET /text", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, m.Report().String()) // the client has left
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hosts.Allow([]byte(r.Host)) {
			refuse(w, http.StatusForbidden, errHost)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// errHost is the error of a request that a page in a browser may have sent.
var errHost = errors.New("the Host is no name of this mirror; use its address, or localhost")

// refuse answers with a problem.
func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, "application/problem+json", map[string]any{
		"title": http.StatusText(status), "status": status, "detail": err.Error()})
}

func (m *Mirror) accept(w http.ResponseWriter, r *http.Request) {
	list, status, err := m.read(w, r)
	if err != nil {
		m.RecordInvalid(err)
		refuse(w, status, err)
		return
	}
	dropped := m.Accept(list)
	answer(w, http.StatusAccepted, "application/json",
		map[string]int{"accepted": len(list) - dropped, "dropped": dropped})
}

// read reads the verdicts of a request, or returns the status and the text of its problem.
func (m *Mirror) read(w http.ResponseWriter, r *http.Request) (list []Verdict, status int,
	err error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && kind != "application/x-ndjson" {
		// Pages in a browser can't send these types to another origin.
		return nil, http.StatusUnsupportedMediaType,
			fmt.Errorf("Content-Type: %q, want application/json", r.Header.Get("Content-Type"))
	}
	from := m.bodiesOf(r)
	size := r.ContentLength
	if size < 0 || size > maxBody {
		size = maxBody // or longer, which is refused
	}
	if !from.Take(size, time.Now().Add(bodyPatience)) {
		return nil, http.StatusTooManyRequests, errBusy
	}
	defer from.Release(size)
	body := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	_, err = body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return nil, http.StatusRequestEntityTooLarge,
			fmt.Errorf("body: longer than %d bytes; send fewer verdicts at a time", maxBody)
	}
	if err == nil {
		m.decoding.Lock() // a body may take many times its size while it is decoded
		defer m.decoding.Unlock()
		list, err = Decode(body.Bytes(), m.opt.Now())
	}
	return list, http.StatusBadRequest, err
}

// answer sends an answer. If that fails, the client has left.
func answer(w http.ResponseWriter, status int, kind string, body any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// The bounds of the HTTP interface: the bytes of bodies that arrive at a time, how long a request
// waits for room among them, the longest header in bytes, and the number of connections.
const (
	maxBodies    = 16 << 20
	bodyPatience = time.Second
	maxHeader    = 16 << 10
	maxConns     = 1024
)

// errBusy is the error of a request that has waited too long.
var errBusy = errors.New("too many bodies arrive at a time; send fewer verdicts, or later")

// Server serves the HTTP interface of a mirror. Half of its connections and of the bytes of bodies
// are for one address. Close lets requests that have begun end.
type Server = listener.Listener[*listener.Admitted]

// NewServer returns a server for l. It has at most a quarter of the process's file descriptors, so
// that connections to the old Redis always find some.
func (m *Mirror) NewServer(l net.Listener, descriptors uint64) *Server {
	conns := int(max(2, min(maxConns, descriptors/4)))
	hosts := hostname.NewCheck(nil, false, hostname.IsLoopback(l.Addr().String()))
	web := &http.Server{Handler: m.Handler(hosts), ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: 75 * time.Second, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientKey{}, c.(*listener.Admitted).Client)
		}}
	return listener.New(listener.Options[*listener.Admitted]{
		Sockets: []*listener.Socket{{Listener: l,
			Conns: listener.NewConns(conns, conns/2, &m.bodies)}},
		Make: func(a *listener.Admitted) *listener.Admitted { return a },
		Run:  web.Serve, Stop: func(ctx context.Context) error { return stop(ctx, web) },
		Reject: rejection, Logger: slog.New(slog.DiscardHandler)})
}

// stop lets requests that have begun end, until ctx ends.
func stop(ctx context.Context, web *http.Server) error {
	err := web.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return web.Close() // connections of clients that don't finish their request
	}
	return err
}

// clientKey is the key of a connection's client in the context of its requests.
type clientKey struct{}

// bodiesOf returns the sender's share of the bytes of bodies.
func (m *Mirror) bodiesOf(r *http.Request) *listener.Share {
	if c, ok := r.Context().Value(clientKey{}).(*listener.Client); ok {
		return &c.Shares[0]
	}
	return m.bodies.NewShare()
}

// rejection answers 429 on a connection that is turned away.
func rejection(why string) []byte {
	return []byte("HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n" +
		"Content-Type: text/plain\r\n\r\n" + why + "\n")
}
