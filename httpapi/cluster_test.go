package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/peerhttp"
	"twotier.dev/twotier/internal/rpc"
)

// TestPartsOnRequest asks for the owners and the nodes, and for neither.
func TestPartsOnRequest(t *testing.T) {
	f := newFake()
	f.view.Members = []cluster.Member{{ID: "a", State: cluster.Alive}}
	s := newServer(t, f)
	plain := string(call(s, "GET /v1/cluster", "").Response.Body())
	all := call(s, "GET /v1/cluster?owners=true&nodes=true", "")
	for _, part := range []string{`"status":{`, `"keys":7,`, `"owners":[0,1,0]`, `"hash_seed":0`} {
		status(t, all, 200, part)
		if strings.Contains(plain, part) {
			t.Errorf("%s, though nobody asked for it: %s", part, plain)
		}
	}
	for _, query := range []string{"nodes=1", "nodes=", "node=true", "owners=1"} {
		status(t, call(s, "GET /v1/cluster?"+query, ""), 422, "")
	}
}

func TestAdminModeIsStrict(t *testing.T) {
	s := newServer(t, newFake())
	for body, want := range map[string]string{
		`{}`:                              `mode: want \"two-tier\" or \"redis\"`,
		`{"mode":"fast"}`:                 `mode: want \"two-tier\" or \"redis\"`,
		`{"mode":1}`:                      "mode: want a string",
		`{"speed":1}`:                     "speed: want mode, once",
		`{"mode":"redis","mode":"redis"}`: "mode: want mode, once",
		`[]`:                              "want an object with mode",
		`{"mode":"redis"`:                 "malformed JSON",
	} {
		code := 422
		if strings.HasPrefix(want, "malformed") {
			code = 400
		}
		status(t, call(s, "POST /v1/admin/mode", body), code, want)
	}
}

// pass makes the passes that echo admits.
func pass(size int) string { return fmt.Sprint("for ", size) }

// echo is a peer that answers with the message in upper case and refuses empty ones.
type echo struct{}

func (echo) Admit(got string, size int) error {
	if got != pass(size) {
		return fmt.Errorf("%q is no pass", got)
	}
	return nil
}

func (echo) Handle(_ context.Context, message []byte) ([]byte, error) {
	if len(message) == 0 {
		return nil, errors.New("not one of us")
	}
	return bytes.ToUpper(message), nil
}

// TestPeerTransport carries messages over a real connection.
func TestPeerTransport(t *testing.T) {
	_, address := open(t, httpapi.Options{Service: newFake(), Peer: echo{}})
	w := peerhttp.New(pass)
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	large := bytes.Repeat([]byte("x"), 3<<20)
	for _, message := range [][]byte{[]byte("hello"), large, []byte("again")} {
		reply, err := w.Send(ctx, address, message)
		if err != nil || !bytes.Equal(reply, bytes.ToUpper(message)) {
			t.Errorf("%d bytes came back as %d, %v", len(message), len(reply), err)
		}
	}
	if _, err := w.Send(ctx, address, nil); !errors.Is(err, rpc.ErrRefused) ||
		!strings.Contains(fmt.Sprint(err), "403") {
		t.Errorf("a message that is refused: %v", err)
	}
	if _, err := w.Send(ctx, address, bytes.Repeat([]byte("x"), 5<<20)); err == nil {
		t.Error("5 MiB are too much")
	}
	if _, err := w.Send(ctx, "127.0.0.1:1", []byte("x")); !errors.Is(err, rpc.ErrUnreachable) {
		t.Errorf("nobody is there: %v", err)
	}
	stranger := peerhttp.New(func(int) string { return "" })
	defer stranger.Close()
	if _, err := stranger.Send(ctx, address, large); !errors.Is(err, rpc.ErrRefused) ||
		!strings.Contains(fmt.Sprint(err), "403") {
		t.Errorf("a message without a pass: %v", err)
	}
	_, alone := open(t, httpapi.Options{Service: newFake()})
	if _, err := w.Send(ctx, alone, []byte("x")); !errors.Is(err, rpc.ErrRefused) {
		t.Errorf("a node without a cluster: %v", err)
	}
}

// verbose is a peer that answers with the number of bytes in the message.
type verbose struct{ echo }

func (verbose) Handle(_ context.Context, message []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(message))
	return make([]byte, n), err
}

// TestReplyOfPeerIsNotRefused has little memory for clients and a long reply to another node, also
// one that is longer than a message may be: an executed message must not be answered as if nothing
// had been done.
func TestReplyOfPeerIsNotRefused(t *testing.T) {
	_, address := open(t, httpapi.Options{Service: newFake(), Peer: verbose{},
		Limits: listener.Limits{MaxMemory: 1 << 20, RequestTimeout: time.Second}})
	w := peerhttp.New(pass)
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, size := range []int{100 << 10, peerhttp.MaxBody, 6 * peerhttp.MaxBody} {
		reply, err := w.Send(ctx, address, []byte(strconv.Itoa(size)))
		if err != nil || len(reply) != size {
			t.Errorf("%d bytes, %v, want %d", len(reply), err, size)
		}
	}
}

// TestPeerPathIsNotForPages refuses requests that a browser would send for another site.
func TestPeerPathIsNotForPages(t *testing.T) {
	s := serverOf(t, httpapi.Options{Service: newFake(), Peer: echo{}})
	for _, media := range []string{"", "text/plain", "application/json",
		"application/octet-stream"} {
		status(t, call(s, "POST /peer", "hello", "Content-Type: "+media), 415, "")
	}
}

// TestEvents compares the service's events, and expects empty lists where it has none.
func TestEvents(t *testing.T) {
	f := newFake()
	s := newServer(t, f)
	get := func(want string) {
		t.Helper()
		if got := string(call(s, "GET /v1/events", "").Response.Body()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	get(`{"events":[],"departed":[]}`)
	f.events = cluster.Events{
		Events: []cluster.Event{{At: 5, Kind: cluster.Crashed, Member: "c", Text: "c is gone",
			Nodes: []string{"a"}}},
		Departed: []cluster.Departed{{ID: "c", Address: "c:1", At: 5, Why: cluster.Crashed}},
		Missing:  []string{"b"},
	}
	get(`{"events":[{"at":5,"kind":"crashed","member":"c","text":"c is gone","nodes":["a"]}],` +
		`"departed":[{"id":"c","address":"c:1","at":5,"why":"crashed"}],"missing":["b"]}`)
	status(t, call(s, "GET /v1/events?x=1", ""), 422, "")
}
