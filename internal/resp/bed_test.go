package resp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/extended"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/topkeys"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// patience bounds operations that should be quick.
const patience = 3 * time.Minute

// service is a real counter with a clock that the test moves.
type service struct {
	httpapi.Service // the methods that are not called here
	counter         *syncer.Counter
	now             atomic.Int64
	err             atomic.Pointer[error]
	panics          atomic.Bool
	hold            chan struct{} // if not nil, operations wait until it is closed
	resets          atomic.Int64
	deals           atomic.Int64     // batches
	refused         *topkeys.Refused // of the commands that a server with verdicts has counted
}

func newService(t testing.TB) *service {
	t.Helper()
	return newServiceBy(t, leaparray.Default())
}

// newServiceBy returns a service that counts in the levels of a ladder.
func newServiceBy(t testing.TB, l *leaparray.Ladder) *service {
	t.Helper()
	s := &service{}
	s.now.Store(1_700_000_000_000)
	clock := func() time.Time { return time.UnixMilli(s.now.Load()) }
	c, err := syncer.New(syncer.Options{Store: embedded.New(embedded.Options{Now: clock}),
		Now:        s.now.Load,
		Namespaces: map[string]syncer.Namespace{twotier.DefaultNamespace: {Ladder: l}}})
	must.Succeed(t, err)
	s.counter = c
	s.refused = topkeys.NewRefused(twotier.Refused, s.now.Load)
	must.Succeed(t, c.Open(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		must.Succeed(t, c.Close(ctx))
	})
	return s
}

func (s *service) fault() error {
	if s.hold != nil {
		<-s.hold
	}
	if s.panics.Load() {
		panic("a test asked for it")
	}
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *service) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if err := s.fault(); err != nil {
		return err
	}
	do := s.counter.Do
	if len(op.Values) > 0 {
		do = extended.Service{Counter: s.counter}.Do
	}
	return do(ctx, op, res)
}

func (s *service) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	s.deals.Add(1)
	if err := s.fault(); err != nil {
		for i := range res {
			res[i].Err = err
		}
		return
	}
	all := s.counter.DoAll
	if slices.ContainsFunc(ops, func(op twotier.Op) bool { return len(op.Values) > 0 }) {
		all = extended.Service{Counter: s.counter}.DoAll
	}
	all(ctx, ops, res)
}

func (s *service) Series(ctx context.Context, ns, key []byte,
	window int64) (int64, []twotier.Point, error) {
	return s.counter.Series(ctx, ns, key, window, false)
}

func (s *service) Top(ctx context.Context, by, _ string, n int,
	window int64) ([]twotier.KeyCount, error) {
	switch by {
	case "refused":
		return s.refused.Top(ctx, "", n, window)
	case "shadow":
		return nil, nil
	case "concurrent":
		return s.counter.TopLeases(ctx, n)
	}
	return s.counter.Top(ctx, n, window)
}

func (s *service) OpenLeases(context.Context, []byte, []byte) (twotier.OpenLeases, error) {
	return twotier.OpenLeases{}, s.fault()
}

func (s *service) Reset(context.Context, []byte, []byte) error {
	s.resets.Add(1)
	return s.fault()
}

// serve opens a server that the end of the test closes.
func serve(t testing.TB, o resp.Options) *resp.Server {
	t.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := resp.New(o)
	must.Succeed(t, err)
	must.Succeed(t, s.Open(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		must.Succeed(t, s.Close(ctx))
	})
	return s
}

// client is a connection that returns replies exactly as received.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, s *resp.Server) *client {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr().String())
	must.Succeed(t, err)
	return attach(t, nc)
}

func attach(t testing.TB, nc net.Conn) *client {
	t.Helper()
	t.Cleanup(func() { nc.Close() })
	must.Succeed(t, nc.SetDeadline(time.Now().Add(patience)))
	return &client{t, nc, bufio.NewReader(nc)}
}

// command encodes one command from a text of words.
func command(text string) string { return encode(strings.Fields(text)...) }

func encode(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// send writes raw, which may hold several commands, in one call.
func (c *client) send(raw string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, raw); err != nil {
		c.t.Fatal(err)
	}
}

// do sends one command and returns the reply in one line.
func (c *client) do(text string) string {
	c.t.Helper()
	c.send(command(text))
	return c.reply()
}

// expect sends commands one after the other, each with the reply that it wants. Of an error, a part
// is enough.
func (c *client) expect(steps [][2]string) {
	c.t.Helper()
	for _, step := range steps {
		got, want := c.do(step[0]), step[1]
		if got != want && !(strings.HasPrefix(got, "-") && strings.Contains(got, want)) {
			c.t.Errorf("%.60s: got %s, want %s", step[0], got, want)
		}
	}
}

// sendInPieces sends raw in pieces of this size while the test reads the replies.
func (c *client) sendInPieces(raw string, size int) {
	go func() {
		for piece := range slices.Chunk([]byte(raw), size) {
			if _, err := c.Write(piece); err != nil {
				return // the test names the missing replies
			}
		}
	}()
}

// expectReplies reads replies in order.
func (c *client) expectReplies(want ...string) {
	c.t.Helper()
	for i, w := range want {
		if got := c.reply(); got != w {
			c.t.Fatalf("reply %d: got %s, want %s", i, got, w)
		}
	}
}

// reply reads one reply: integers and texts as they are, arrays in brackets, maps in braces.
func (c *client) reply() string {
	c.t.Helper()
	text, err := c.next()
	if err != nil {
		c.t.Fatalf("no reply: %v", err)
	}
	return text
}

func (c *client) next() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	kind, rest := line[0], line[1:]
	n, _ := strconv.Atoi(rest)
	switch kind {
	case '$':
		if n < 0 {
			return "nil", nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(c.r, b)
		return string(b[:n]), err
	case '*', '%':
		if n < 0 {
			return "nil", nil
		}
		if kind == '%' {
			n *= 2
		}
		items := make([]string, n)
		for i := range items {
			if items[i], err = c.next(); err != nil {
				return "", err
			}
		}
		if kind == '%' {
			return "{" + strings.Join(items, " ") + "}", nil
		}
		return "[" + strings.Join(items, " ") + "]", nil
	case '_':
		return "nil", nil
	case '-':
		return "-" + rest, nil
	}
	return rest, nil // '+' and ':'
}

// ended waits until the server has closed the connection.
func (c *client) ended() {
	c.t.Helper()
	if _, err := c.r.ReadByte(); err == nil {
		c.t.Error("there is more to read")
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Error("the connection was not closed")
	}
}

// rowsOf returns the counted verdicts, a line for each series.
func rowsOf(counters *verdicts.Counters) (text string) {
	for _, r := range counters.Rows() {
		text += fmt.Sprintf("%s/%s %v\n", r.Namespace, r.Rule, r.Totals)
	}
	return text
}

// metricsOf returns the server's metrics, by name and label.
func metricsOf(t *testing.T, s *resp.Server) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	must.Succeed(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

// eventually waits until done returns true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for by := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(by) {
			t.Fatalf("%s: it does not happen", what)
		}
	}
}
