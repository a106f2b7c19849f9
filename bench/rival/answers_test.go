package rival_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
)

// TestDecideReadsWhatTheAnswersSay compares Decide, which does not parse the answers of a server,
// with encoding/json on the same bytes.
func TestDecideReadsWhatTheAnswersSay(t *testing.T) {
	env, err := rival.Build(t.Context(), t.TempDir())
	must.Succeed(t, err)
	s, err := rival.Twotier("twotier", 1, rival.Memory).Start(t.Context(), env)
	must.Succeed(t, err)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	tap := listen(t, s.Servers[0].Addr)
	l := limiter.NewHTTP("tapped", tap.addr)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	sent, admitted := 0, 0
	for i := range 200 {
		calls := make([]limiter.Call, 1+i%2*r.IntN(60))
		for k := range calls {
			calls[k] = randomCall(r)
		}
		n, err := l.Decide(t.Context(), calls)
		must.Succeed(t, err)
		sent, admitted = sent+len(calls), admitted+n
	}
	must.Succeed(t, l.Close())
	want := tap.decode(t)
	t.Logf("%d sent, %d admitted, %+v", sent, admitted, want)
	if want.operations != sent || want.admitted != admitted || want.admitted == 0 ||
		want.admitted == sent {
		t.Errorf("%d were sent and %d admitted; JSON says %+v", sent, admitted, want)
	}
	wrong := limiter.At(time.Now().UnixMilli(), limiter.One("", []limiter.Limit{{Window: 1000}}))
	for _, calls := range [][]limiter.Call{{wrong}, {randomCall(r), wrong}} {
		if _, err := l.Decide(t.Context(), calls); err == nil {
			t.Errorf("%d calls, one of which is wrong, are no error", len(calls))
		}
	}
}

// randomCall is an add, or an acquire of one or two keys out of a few that fill up.
func randomCall(r *rand.Rand) limiter.Call {
	limits := []limiter.Limit{{Window: 60_000, Max: 30}, {Window: 3_600_000, Max: 60}}
	check := func() limiter.Check {
		return limiter.Check{Key: []byte("allowed:" + strconv.Itoa(r.IntN(40))),
			N: 1 + r.Int64N(2), Limits: limits[:1+r.IntN(2)]}
	}
	call := limiter.At(time.Now().UnixMilli(), check())
	switch r.IntN(4) {
	case 0:
		call.Kind, call.Checks[0].Limits = twotier.Add, nil
		if r.IntN(2) == 0 {
			call.TS = 0
		}
	case 1:
		call.Checks = append(call.Checks, limiter.One("other", limits))
	}
	return call
}

// tap forwards connections to a server, and keeps the bytes of both directions.
type tap struct {
	addr string

	all   sync.WaitGroup // the connections
	mu    sync.Mutex
	pairs []*pair
}

type pair struct{ requests, answers bytes.Buffer }

func listen(t *testing.T, to string) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { l.Close() })
	p := &tap{addr: l.Addr().String()}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			p.forward(t, from, to)
		}
	}()
	return p
}

func (p *tap) forward(t *testing.T, from net.Conn, to string) {
	server, err := net.Dial("tcp", to)
	if err != nil {
		t.Error(err)
		return
	}
	kept := &pair{}
	p.mu.Lock()
	p.pairs = append(p.pairs, kept)
	p.mu.Unlock()
	p.all.Go(func() {
		_, _ = io.Copy(server, io.TeeReader(from, &kept.requests))
		server.Close()
	})
	p.all.Go(func() {
		_, _ = io.Copy(from, io.TeeReader(server, &kept.answers))
		from.Close()
	})
}

// tally counts operations in requests and admissions in answers, both read as JSON.
type tally struct{ operations, admitted int }

// decode reads all kept bytes, once the connections are closed.
func (p *tap) decode(t *testing.T) (n tally) {
	p.all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pair := range p.pairs {
		requests, answers := bufio.NewReader(&pair.requests), bufio.NewReader(&pair.answers)
		for {
			request, err := http.ReadRequest(requests)
			if errors.Is(err, io.EOF) {
				break
			}
			must.Succeed(t, err)
			body, err1 := io.ReadAll(request.Body)
			answer, err2 := http.ReadResponse(answers, request)
			must.Succeed(t, errors.Join(err1, err2))
			one := decodeOne(t, request.URL.Path, body, answer)
			n.operations, n.admitted = n.operations+one.operations, n.admitted+one.admitted
		}
	}
	return n
}

// decodeOne reads a request and its answer.
func decodeOne(t *testing.T, path string, body []byte, answer *http.Response) (n tally) {
	var asked struct{ Ops []json.RawMessage }
	var said struct {
		Key                 *string
		Ops, Added, Refused int
		Errors              []json.RawMessage
		Allowed             json.RawMessage
	}
	if err := errors.Join(json.Unmarshal(body, &asked),
		json.NewDecoder(answer.Body).Decode(&said)); err != nil {
		t.Fatalf("%s %s: %v", path, body, err)
	}
	n.operations = max(len(asked.Ops), 1)
	switch path {
	case "/v1/batch":
		allowed, err := strconv.Atoi(string(said.Allowed))
		if n.admitted = said.Added + allowed; err != nil || len(said.Errors) > 0 ||
			said.Ops != n.operations || n.admitted+said.Refused != n.operations {
			t.Errorf("%d operations: %+v, %v", n.operations, said, err)
		}
	case "/v1/acquire":
		allowed, err := strconv.ParseBool(string(said.Allowed))
		if err != nil {
			t.Errorf("%+v, %v", said, err)
		}
		if allowed {
			n.admitted = 1
		}
	case "/v1/add":
		if n.admitted = 1; said.Key == nil {
			t.Errorf("%+v", said)
		}
	}
	return n
}
