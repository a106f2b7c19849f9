package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/token"
)

const oneAdd = `{"ops":[{"op":"add","key":"a"}]}`

// inSession sends a batch as part of a session; process may be empty.
func inSession(s *httpapi.Server, name string, seq any, process, body string) *fasthttp.RequestCtx {
	headers := []string{"Twotier-Session: " + name, fmt.Sprint("Twotier-Sequence: ", seq)}
	if process != "" {
		headers = append(headers, "Twotier-Process: "+process)
	}
	return call(s, "POST /v1/batch", body, headers...)
}

// begun begins a session and returns the server's process.
func begun(t *testing.T, s *httpapi.Server, name string) string {
	t.Helper()
	ctx := inSession(s, name, 1, "", `{"ops":[]}`)
	process := string(ctx.Response.Header.Peek("Twotier-Process"))
	if ctx.Response.StatusCode() != 200 || process == "" {
		t.Fatalf("%d %q %s", ctx.Response.StatusCode(), process, ctx.Response.Body())
	}
	return process
}

const sessionA, sessionB = "session-aaaaaaaaaaaa", "session-bbbbbbbbbbbb"

func TestRepeatedBatchIsCarriedOutOnce(t *testing.T) {
	f := newFake()
	s := newServer(t, f)
	process := begun(t, s, sessionA)
	first := string(inSession(s, sessionA, 2, process, oneAdd).Response.Body())
	for range 3 {
		again := inSession(s, sessionA, 2, process, oneAdd)
		if again.Response.StatusCode() != 200 || string(again.Response.Body()) != first ||
			string(again.Response.Header.ContentType()) != "application/json" {
			t.Errorf("again: %d %s, want %s", again.Response.StatusCode(),
				again.Response.Body(), first)
		}
	}
	if n := f.get("a"); n != 1 {
		t.Errorf("counted %d times", n)
	}
	if metrics := string(call(s, "GET /metrics", "").Response.Body()); !strings.Contains(metrics,
		"twotier_session_repeats_total 3\n") ||
		!strings.Contains(metrics, "twotier_sessions 1\n") {
		t.Error("the metrics don't tell")
	}
	inSession(s, sessionA, 3, process, oneAdd)
	if n := f.get("a"); n != 2 {
		t.Errorf("a new number: %d", n)
	}
}

// TestRepeatedRefusalIsTheSame repeats a batch that was refused as a whole.
func TestRepeatedRefusalIsTheSame(t *testing.T) {
	s := newServer(t, newFake())
	process := begun(t, s, sessionA)
	for range 2 {
		status(t, inSession(s, sessionA, 2, process, `{"ops":`), 400, "")
	}
}

func TestSessionRefusals(t *testing.T) {
	f := newFake()
	s := newServer(t, f)
	process := begun(t, s, sessionA)
	inSession(s, sessionA, 5, process, `{"ops":[]}`)
	for _, test := range []struct {
		name, session string
		seq           any
		process       string
		code          int
	}{
		{"older number", sessionA, 4, process, 409},
		{"first number again", sessionA, 1, process, 409},
		{"unknown session", sessionB, 2, process, 409},
		{"other process", sessionA, 6, "another", 421},
		{"other process, new session", sessionB, 1, "another", 421},
		{"short name", "abc", 1, process, 422},
		{"long name", strings.Repeat("a", 65), 1, process, 422},
		{"odd name", "session aaaaaaaaaaaa", 1, process, 422},
		{"no number", sessionA, "", process, 422},
		{"zero", sessionA, 0, process, 422},
		{"negative", sessionA, -1, process, 422},
		{"not a number", sessionA, "6x", process, 422},
		{"too large", sessionA, "99999999999999999999", process, 422},
	} {
		ctx := inSession(s, test.session, test.seq, test.process, oneAdd)
		if code := ctx.Response.StatusCode(); code != test.code {
			t.Errorf("%s: %d %s", test.name, code, ctx.Response.Body())
		}
		if string(ctx.Response.Header.Peek("Twotier-Process")) != process {
			t.Errorf("%s: the process is not named", test.name)
		}
	}
	if n := f.get("a"); n != 0 {
		t.Errorf("counted %d", n)
	}
	if ctx := call(s, "POST /v1/batch",
		oneAdd); len(ctx.Response.Header.Peek("Twotier-Process")) > 0 || f.get("a") != 1 {
		t.Error("a batch without a session is not as it was")
	}
}

// TestRepetitionWaitsForTheFirst repeats a batch while it is being executed.
func TestRepetitionWaitsForTheFirst(t *testing.T) {
	f := newFake()
	entered, leave := make(chan struct{}), make(chan struct{})
	f.fault = func(context.Context) error {
		close(entered) // panics if executed twice
		<-leave
		return nil
	}
	s := newServer(t, f)
	process := begun(t, s, sessionA)
	var done sync.WaitGroup
	bodies := make([]string, 3)
	send := func(i int) {
		bodies[i] = string(inSession(s, sessionA, 2, process, oneAdd).Response.Body())
	}
	done.Go(func() { send(0) })
	<-entered
	done.Go(func() { send(1) })
	done.Go(func() { send(2) })
	close(leave)
	done.Wait()
	if bodies[0] == "" || bodies[1] != bodies[0] || bodies[2] != bodies[0] || f.get("a") != 1 {
		t.Errorf("%q, counted %d", bodies, f.get("a"))
	}
}

// TestRepetitionAfterAPanic gets an unknown outcome.
func TestRepetitionAfterAPanic(t *testing.T) {
	f := newFake()
	f.fault = func(context.Context) error { panic("as the test wants") }
	s := newServer(t, f)
	process := begun(t, s, sessionA)
	status(t, inSession(s, sessionA, 2, process, oneAdd), 500, "")
	f.fault = nil
	ctx := inSession(s, sessionA, 2, process, oneAdd)
	if ctx.Response.StatusCode() != 503 ||
		!strings.Contains(string(ctx.Response.Body()), `"outcome":"unknown"`) || f.get("a") != 0 {
		t.Errorf("%d %s", ctx.Response.StatusCode(), ctx.Response.Body())
	}
}

// TestSessionsAreBounded begins more sessions than there is room for: the least recently used ones
// are forgotten, and refused rather than begun anew, even if only their first request was executed.
func TestSessionsAreBounded(t *testing.T) {
	f := newFake()
	s := newServer(t, f)
	process := begun(t, s, sessionA)
	inSession(s, sessionA, 2, process, oneAdd)
	const sessionC = "session-cccccccccccc"
	inSession(s, sessionC, 1, "", strings.ReplaceAll(oneAdd, `"a"`, `"c"`))
	begun(t, s, sessionB)
	for i := range httpapi.MaxSessions + 10 {
		begun(t, s, fmt.Sprintf("session-%012d", i))
		if i%1000 == 0 {
			inSession(s, sessionB, 2+i, process, `{"ops":[]}`)
		}
	}
	if n, _ := s.Sessions(); n != httpapi.MaxSessions {
		t.Errorf("%d sessions", n)
	}
	if ctx := inSession(s, sessionA, 2, process, oneAdd); ctx.Response.StatusCode() != 409 ||
		f.get("a") != 1 {
		t.Errorf("a forgotten session: %d", ctx.Response.StatusCode())
	}
	if ctx := inSession(s, sessionC, 1, "", oneAdd); ctx.Response.StatusCode() != 409 ||
		f.get("a") != 1 || f.get("c") != 1 {
		t.Errorf("a first request again: %d", ctx.Response.StatusCode())
	}
	status(t, inSession(s, sessionB, 1_000_000, process, oneAdd), 200, "")
}

// TestSessionAnswersAreBounded fills the memory for answers. A session whose answer was forgotten
// gets an error that reports it, and can continue.
func TestSessionAnswersAreBounded(t *testing.T) {
	s := newServer(t, newFake())
	var large strings.Builder
	large.WriteString(`{"ops":[`)
	for i := range 9000 {
		if i > 0 {
			large.WriteByte(',')
		}
		fmt.Fprintf(&large, `{"op":"count","key":"%0100d","window":"1m"}`, i)
	}
	large.WriteString(`]}`)
	for i := range 40 {
		name := fmt.Sprintf("session-%012d", i)
		if code := inSession(s, name, 2, begun(t, s, name),
			large.String()).Response.StatusCode(); code != 200 {
			t.Fatal(code)
		}
	}
	n, size := s.Sessions()
	if n != 40 || size > httpapi.MaxSessionBytes ||
		size < httpapi.MaxSessionBytes-httpapi.MaxSessionReply {
		t.Errorf("%d sessions keep %d bytes", n, size)
	}
	for i, want := range map[int]int{0: 409, 39: 200} {
		name := fmt.Sprintf("session-%012d", i)
		again := inSession(s, name, 2, "", large.String()).Response.StatusCode()
		next := inSession(s, name, 3, "", oneAdd).Response.StatusCode()
		if again != want || next != 200 {
			t.Errorf("session %d: again %d, want %d; next %d", i, again, want, next)
		}
	}
}

// TestRepetitionsShareTheAnswer: repetitions take no additional memory.
func TestRepetitionsShareTheAnswer(t *testing.T) {
	s := newServer(t, newFake())
	inSession(s, sessionA, 1, "", adds(1000))
	one, other := inSession(s, sessionA, 1, "", "").Response.Body(),
		inSession(s, sessionA, 1, "", "").Response.Body()
	if len(one) < 10_000 || len(other) != len(one) || &one[0] != &other[0] {
		t.Errorf("%d and %d bytes, each of their own", len(one), len(other))
	}
}

// TestRepetitionWithoutMemory repeats a request when there is no memory for its answer: the error
// must not claim that nothing was done.
func TestRepetitionWithoutMemory(t *testing.T) {
	f := newFake()
	var blocking atomic.Bool
	entered, release := make(chan struct{}, 2000), make(chan struct{})
	f.fault = func(context.Context) error {
		if blocking.Load() {
			entered <- struct{}{}
			<-release
		}
		return nil
	}
	_, addr := open(t, httpapi.Options{Service: f, Limits: listener.Limits{MaxMemory: 4 << 20,
		MaxConns: 10, RequestTimeout: 500 * time.Millisecond}})
	c := dial(t, addr)
	r := bufio.NewReader(c)
	ask := func(body string) (int, string) {
		fmt.Fprintf(c, "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nTwotier-Session: "+
			"%s\r\nTwotier-Sequence: 1\r\nContent-Length: %d\r\n\r\n%s",
			sessionA, len(body), body)
		return answer(t, r)
	}
	code, first := ask(`{"ops":[{"op":"count","key":"k","window":"` + strings.Repeat("1s,", 63) +
		`1s"}` +
		strings.Repeat(`,{"op":"count","key":"k","window":"`+strings.Repeat("1s,", 63)+`1s"}`, 29) +
		"]}")
	if code != 200 || len(first) < 100_000 {
		t.Fatalf("%d, %d bytes", code, len(first))
	}
	blocking.Store(true)
	var running sync.WaitGroup
	running.Go(func() { try(http.DefaultClient, "http://"+addr+"/v1/batch", adds(800)) })
	<-entered
	if code, again := ask("{}"); code != 503 || !strings.Contains(again, `"outcome":"unknown"`) {
		t.Errorf("without memory: %d %.200s", code, again)
	}
	blocking.Store(false)
	close(release)
	running.Wait()
	http.DefaultClient.CloseIdleConnections()
	if code, again := ask("{}"); code != 200 || again != first {
		t.Errorf("with memory: %d %.200s", code, again)
	}
}

// reloaded replaces the lines of tokens in a store, under the same hashes.
func reloaded(t *testing.T, store *token.Store, hashes map[string]string, lines ...[2]string) {
	t.Helper()
	file := ""
	for _, l := range lines {
		file += l[0] + " " + hashes[l[0]] + " " + l[1] + "\n"
	}
	must.Succeed(t, store.Load([]byte(file)))
}

// TestSessionIsItsTokens: an answer is not repeated to another token, nor to the same one once it
// grants less; and no other token can continue the session.
func TestSessionIsItsTokens(t *testing.T) {
	f, store := newFake(), new(token.Store)
	texts, hashes := map[string]string{}, map[string]string{}
	for _, name := range []string{"mine", "other"} {
		texts[name], hashes[name] = token.New()
	}
	reloaded(t, store, hashes, [2]string{"mine", "count,read"},
		[2]string{"other", "count,read,admin"})
	s := serverOf(t, httpapi.Options{Service: f, Tokens: store})
	send := func(name, seq string, want int) {
		t.Helper()
		ctx := call(s, "POST /v1/batch", oneAdd,
			"Twotier-Session: "+sessionA, "Twotier-Sequence: "+seq,
			"Authorization: Bearer "+texts[name])
		if ctx.Response.StatusCode() != want {
			t.Errorf("%s with number %s: %d %s, want %d", name, seq, ctx.Response.StatusCode(),
				ctx.Response.Body(), want)
		}
	}
	send("mine", "1", 200)
	send("mine", "1", 200)
	send("other", "1", 409)
	send("other", "2", 409)
	reloaded(t, store, hashes, [2]string{"mine", "count,read,admin"}, [2]string{"other", "count"})
	send("mine", "1", 200) // grants more now
	send("mine", "2", 200)
	reloaded(t, store, hashes, [2]string{"mine", "count,read login"}, [2]string{"other", "count"})
	send("mine", "2", 409)
	reloaded(t, store, hashes, [2]string{"other", "count"})
	send("mine", "2", 401)
	if n := f.get("a"); n != 2 {
		t.Errorf("counted %d times, want 2", n)
	}
}
