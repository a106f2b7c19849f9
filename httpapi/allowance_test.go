package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/testing/must"
)

// from returns a client that sends from an address.
func from(t *testing.T, ip string) *http.Client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// adds is a batch of so many operations.
func adds(n int) string {
	return `{"ops":[` + strings.TrimSuffix(strings.Repeat(`{"op":"add","key":"k"},`, n), ",") + "]}"
}

// try posts a body and returns the status and the answer.
func try(c *http.Client, url, body string) (int, string, error) {
	res, err := c.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// TestConnectionsAreBounded: those of one address, and all of them.
func TestConnectionsAreBounded(t *testing.T) {
	s, addr := open(t, httpapi.Options{Service: newFake(), Limits: listener.Limits{MaxConns: 3,
		MaxConnsPerAddress: 2}})
	refused := func(ip, why string) {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		c, err := d.Dial("tcp", addr)
		must.Succeed(t, err)
		defer c.Close()
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 429") ||
			!strings.Contains(string(got), why) {
			t.Errorf("one more of %s: %q, %v, want %s", ip, got, err, why)
		}
	}
	for range 2 {
		send(t, addr, rawAdd(`{"key":"k"}`))
	}
	refused("127.0.0.1", "from this address")
	code, body, err := try(from(t, "127.0.0.2"), "http://"+addr+"/v1/add", `{"key":"k"}`)
	if code != 200 || err != nil {
		t.Errorf("another address: %d %s %v", code, body, err)
	}
	if conns := s.Taken().Conns; conns != 3 {
		t.Errorf("%d connections are accounted for", conns)
	}
	refused("127.0.0.3", "too many connections")
}

// TestDoorsAreApart lets strangers take all connections of one endpoint; administration and nodes
// have separate ones.
func TestDoorsAreApart(t *testing.T) {
	s, addr := open(t, httpapi.Options{Service: newFake(), Peer: echo{}, Admin: "127.0.0.1:0",
		PeerListen: "127.0.0.1:0", Limits: listener.Limits{MaxConns: 2, MaxConnsPerAddress: 2}})
	for range 2 {
		send(t, addr, rawAdd(`{"key":"k"}`))
	}
	for name, at := range map[string]string{"administration": s.AdminAddr().String(),
		"nodes": s.PeerAddr().String()} {
		const request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
		if code, body := send(t, at, request); code != 200 {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

// hold makes operations signal their start on entered and wait until release is closed.
func hold(f *fake) (entered <-chan struct{}, release chan struct{}) {
	in, release := make(chan struct{}, 100), make(chan struct{})
	f.fault = func(context.Context) error {
		select {
		case in <- struct{}{}:
		case <-release:
		}
		<-release
		return nil
	}
	return in, release
}

// TestMemoryIsBounded lets batches of one address take all the memory that the address may have.
func TestMemoryIsBounded(t *testing.T) {
	f := newFake()
	entered, release := hold(f)
	s, addr := open(t, httpapi.Options{Service: f, Limits: listener.Limits{MaxMemory: 4 << 20,
		MaxConns: 10, RequestTimeout: 2 * time.Second}})
	url, greedy := "http://"+addr, from(t, "127.0.0.1")
	var running sync.WaitGroup
	running.Go(func() {
		if code, body, err := try(greedy, url+"/v1/batch", adds(800)); code != 200 || err != nil {
			t.Errorf("the first: %d %.200s %v", code, body, err)
		}
	})
	<-entered
	if taken := s.Taken(); taken.Bytes < 800*300 || taken.Bytes > 1<<20 {
		t.Errorf("%d bytes are accounted for", taken.Bytes)
	}
	code, body, err := try(greedy, url+"/v1/batch", adds(800))
	if code != 429 || !strings.Contains(body, "nothing was done") || err != nil {
		t.Errorf("a second one of the address: %d %.200s %v", code, body, err)
	}
	for path, client := range map[string]*http.Client{"/v1/add": greedy,
		"/v1/batch": from(t, "127.0.0.2")} {
		running.Go(func() {
			body := adds(800)
			if path == "/v1/add" {
				body = `{"key":"k"}`
			}
			if code, body, err := try(client, url+path, body); code != 200 || err != nil {
				t.Errorf("%s: %d %.200s %v", path, code, body, err)
			}
		})
		<-entered // it runs at the same time
	}
	close(release)
	running.Wait()
	if code, body, err = try(greedy, url+"/v1/batch", adds(2000)); code != 413 || err != nil {
		t.Errorf("more than an address may have: %d %.200s %v", code, body, err)
	}
	eventually(t, func() bool { return s.Taken().Bytes == 0 }, "everything is given back")
}

// TestNoMemoryForTheAnswer has no room for the answer to an executed request.
func TestNoMemoryForTheAnswer(t *testing.T) {
	f := newFake()
	entered, release := hold(f)
	_, addr := open(t, httpapi.Options{Service: f, RateLimiter: wordy{},
		Limits: listener.Limits{MaxMemory: 4 << 20, MaxConns: 10, RequestTimeout: 2 * time.Second}})
	greedy := from(t, "127.0.0.1")
	var running sync.WaitGroup
	running.Go(func() { _, _, _ = try(greedy, "http://"+addr+"/v1/batch", adds(800)) })
	<-entered
	code, body, err := try(greedy, "http://"+addr+"/json", `{}`)
	if code != 503 || !strings.Contains(body, `"outcome":"unknown"`) ||
		!strings.Contains(body, "there is no memory now for the answer") || err != nil {
		t.Errorf("%d %.300s %v, want an unknown outcome", code, body, err)
	}
	close(release)
	running.Wait()
}

// wordy is a rate limiter whose answers are long.
type wordy struct{}

func (wordy) JSON(context.Context, *twotier.Grant, []byte) ([]byte, bool, error) {
	return make([]byte, 600<<10), false, nil
}

// TestBatchThatIsTooLargeSaysHowManyFit sends the number of operations that the error names, and
// one more.
func TestBatchThatIsTooLargeSaysHowManyFit(t *testing.T) {
	_, addr := open(t, httpapi.Options{Service: newFake(),
		Limits: listener.Limits{MaxMemory: 4 << 20, MaxConns: 10}})
	batch := func(n int) (int, string) {
		code, body, err := try(from(t, "127.0.0.1"), "http://"+addr+"/v1/batch", adds(n))
		must.Succeed(t, err)
		return code, body
	}
	code, body := batch(9000)
	_, told, _ := strings.Cut(body, "the first ")
	var fit int
	if _, err := fmt.Sscan(told, &fit); code != 413 || err != nil ||
		!strings.Contains(body, "KiB that one address may use here") {
		t.Fatalf("%d %s", code, body)
	}
	if code, body := batch(fit); code != 200 {
		t.Errorf("%d operations, which were said to fit: %d %.500s", fit, code, body)
	}
	if code, _ := batch(fit + 1); code != 413 {
		t.Errorf("one more than were said to fit: %d", code)
	}
}

// TestMemoryIsWaitedFor makes a batch wait for one that ends soon.
func TestMemoryIsWaitedFor(t *testing.T) {
	f := newFake()
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.fault = func(context.Context) error {
		once.Do(func() {
			close(entered)
			<-release
		})
		return nil
	}
	s, addr := open(t, httpapi.Options{Service: f, Limits: listener.Limits{MaxMemory: 4 << 20,
		MaxConns: 10, RequestTimeout: time.Minute}})
	var running sync.WaitGroup
	for i := range 4 {
		running.Go(func() {
			if code, body, err := try(http.DefaultClient, "http://"+addr+"/v1/batch",
				adds(800)); code != 200 || err != nil {
				t.Errorf("%d: %d %.200s %v", i, code, body, err)
			}
		})
	}
	<-entered
	eventually(t, func() bool { return s.Taken().Waiting }, "others wait")
	close(release)
	running.Wait()
}

// TestChunks reads bodies of unknown length.
func TestChunks(t *testing.T) {
	s, addr := open(t, httpapi.Options{Service: newFake()})
	for n, want := range map[int]int{1: 200, 1000: 200, 8000: 200, 60_000: 413} {
		body := struct{ io.Reader }{strings.NewReader(adds(n))} // hides the length
		res, err := http.Post("http://"+addr+"/v1/batch", "application/json", body)
		if err != nil {
			t.Errorf("%d operations: %v", n, err)
			continue
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want || err != nil ||
			want == 200 && strings.Count(string(got), `"source"`) != n {
			t.Errorf("%d operations: %d %.100s %v", n, res.StatusCode, got, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	eventually(t, func() bool { return s.Taken().Bytes == 0 }, "everything is given back")
}

// eventually waits until a condition holds.
func eventually(t *testing.T, holds func() bool, what string) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("in vain: %s", what)
}

// TestBodyThatNeverFits gets a different error from a body for which there is no memory now.
func TestBodyThatNeverFits(t *testing.T) {
	s, addr := open(t, httpapi.Options{Service: newFake(),
		Limits: listener.Limits{MaxMemory: 4 << 20, MaxConns: 64, MaxConnsPerAddress: 1,
			RequestTimeout: time.Minute}})
	if code, body, err := try(from(t, "127.0.0.1"), "http://"+addr+"/v1/batch",
		adds(500)); code != 413 || err != nil {
		t.Errorf("%d %.200s %v", code, body, err)
	}
	eventually(t, func() bool { return s.Taken().Bytes == 0 }, "everything is given back")
}

// TestMemoryOfHolds compares what batches with holds and without them take: in addition, the room
// for each id while it is made, encoded and copied, and for each lease.
func TestMemoryOfHolds(t *testing.T) {
	const many = 200
	month := `{"window":"month.14@America/Argentina/ComodRivadavia","max":900000000000}`
	for name, c := range map[string]struct{ key, limits, lease string }{
		"short":  {"k", `{"window":"1m","max":900}`, ""},
		"long":   {strings.Repeat(`k`, 256), `{"window":"1m","max":900}`, ""},
		"month":  {"k", month + "," + month + "," + month, ""},
		"leased": {"k", `{"window":"1m","max":900}`, `,{"concurrent":900},{"concurrent":1200}`},
	} {
		t.Run(name, func(t *testing.T) {
			plain, _ := takenBy(t, many, fmt.Sprintf(
				`{"op":"acquire","key":%q,"limits":[%s]}`, c.key, c.limits))
			held, answer := takenBy(t, many, fmt.Sprintf(
				`{"op":"acquire","key":%q,"limits":[%s%s],"hold":"24h"}`, c.key, c.limits, c.lease))
			ids := strings.Count(answer, `"hold":"`)
			_, id, _ := strings.Cut(answer, `"hold":"`)
			id, _, _ = strings.Cut(id, `"`)
			least := int64(many * 2 * len(id))
			if c.lease != "" {
				least += many * 1000
			}
			if ids != many || len(id) < 50 || held-plain < least {
				t.Errorf("%d ids of %d bytes: %d more bytes are accounted for, want at least %d",
					ids, len(id), held-plain, least)
			}
		})
	}
}

// takenBy returns the bytes that are accounted for while a batch of equal operations is executed,
// and its answer.
func takenBy(t *testing.T, n int, op string) (bytes int64, answer string) {
	t.Helper()
	f := newFake()
	entered, release := hold(f)
	s, addr := open(t, httpapi.Options{Service: f, Holds: documentedHolds(),
		Limits: listener.Limits{MaxMemory: 256 << 20, MaxConns: 10,
			RequestTimeout: 2 * time.Second}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		code, body, err := try(from(t, "127.0.0.1"), "http://"+addr+"/v1/batch",
			`{"ops":[`+strings.TrimSuffix(strings.Repeat(op+",", n), ",")+"]}")
		if code != 200 || err != nil {
			t.Errorf("%d %.200s %v", code, body, err)
		}
		answer = body
	}()
	select {
	case <-entered:
		bytes = s.Taken().Bytes
	case <-done:
	}
	close(release)
	<-done
	return bytes, answer
}
