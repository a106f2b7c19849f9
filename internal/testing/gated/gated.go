package gated

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// Gate returns the gate of a variant in Go, and the networks of its trusted proxies.
func Gate(t *testing.T, v *Variant) (g *client.Gate, trusted []netip.Prefix) {
	t.Helper()
	c, err := client.New(client.Options{Addresses: []string{v.Server}})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, c.Close(context.Background())) })
	outage := client.FailOpen
	if v.Deny {
		outage = client.FailClosed
	}
	g, err = client.NewGate(client.GateOptions{Client: c, Outage: outage, Wait: 5 * time.Second,
		Namespace: v.Namespace, Name: v.Options.Name,
		Limits: []client.Limit{{Window: time.Minute, Max: 3}}})
	must.Succeed(t, err)
	if v.Trusted != "" {
		trusted = append(trusted, netip.PrefixFrom(netip.MustParseAddr(v.Trusted), 32))
	}
	return g, trusted
}

// Options are the settings of middleware. Its limit is 3 requests per minute, its key the address.
type Options struct {
	Server    string // host:port
	Namespace string
	Name      string // of the middleware
	Deny      bool   // refuse requests while no server can be reached
	Trusted   string // the address of a trusted proxy, or ""
}

// Variant is one server of a framework.
type Variant struct {
	Name string
	Options
	check func(*testing.T, *http.Client, string)
}

// Variants returns the servers to start for a framework, all of which ask node. Addresses of the
// framework's server are 127.0.0.1 and a port.
func Variants(framework string, node *proctest.Process) []Variant {
	const nobody = "127.0.0.1:1"
	checkCounts := func(key string) func(*testing.T, *http.Client, string) {
		return func(t *testing.T, c *http.Client, base string) {
			checkLimit(t, c, base)
			a, err := node.TryCount("key=" + key + "&window=1m&ns=" + framework)
			if err != nil || a.Counts[0].Max != 3 {
				t.Errorf("3 requests passed; counted for %s: %+v, %v", key, a.Counts, err)
			}
		}
	}
	return []Variant{
		{"limit", Options{Server: node.Listen, Namespace: framework}, checkCounts("127.0.0.1")},
		{"named", Options{Server: node.Listen, Namespace: framework, Name: "login"},
			checkCounts("login:127.0.0.1")},
		{"trusted", Options{Server: node.Listen, Namespace: framework + "-trusted",
			Trusted: "127.0.0.1"}, checkTrusted},
		{"allow", Options{Server: nobody}, checkAllow},
		{"deny", Options{Server: nobody, Deny: true}, checkDeny},
	}
}

// Check checks the server of the variant, which listens at a URL.
func (v *Variant) Check(t *testing.T, base string) {
	t.Run(v.Name, func(t *testing.T) {
		c := proctest.NewClient()
		defer c.CloseIdleConnections()
		v.check(t, c, base)
	})
}

// answer is an answer to a sender.
type answer struct {
	status int
	header http.Header
	body   string
}

// get sends a request, forwarded for an address if there is one.
func get(t *testing.T, c *http.Client, base, forwarded string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/", nil)
	must.Succeed(t, err)
	if forwarded != "" {
		r.Header.Set("X-Forwarded-For", forwarded)
	}
	resp, err := c.Do(r)
	must.Succeed(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// checkLimit sends requests, each with another forged address: the fourth is refused.
func checkLimit(t *testing.T, c *http.Client, base string) {
	for i := range 5 {
		a := get(t, c, base, "203.0.113."+strconv.Itoa(i))
		if got := a.header.Get("RateLimit-Policy"); got != `"limits[0]";q=3;w=60` {
			t.Errorf("request %d: the policy is %s", i, got)
		}
		if i < 3 {
			state := `"limits[0]";r=` + strconv.Itoa(2-i)
			if a.status != 200 || a.header.Get("RateLimit") != state ||
				a.header.Get("Retry-After")+a.header.Get("Twotier-Refusal") != "" ||
				!strings.Contains(a.body, "hello") {
				t.Errorf("request %d: %+v, want %s", i, a, state)
			}
			continue
		}
		wait := a.header.Get("Retry-After")
		if n, err := strconv.Atoi(wait); err != nil || n < 1 || n > 60 ||
			a.header.Get("RateLimit") != `"limits[0]";r=0;t=`+wait {
			t.Errorf("request %d: to be tried again after %q: %v", i, wait, a.header)
		}
		checkProblem(t, a, 429, "too many requests for a limit, or for the moment", wait)
	}
}

// checkTrusted sends requests through a trusted proxy: its client's address is limited, whatever
// addresses that client has forged.
func checkTrusted(t *testing.T, c *http.Client, base string) {
	for i := range 4 {
		forged := "198.51.100." + strconv.Itoa(i)
		a := get(t, c, base, forged+", 203.0.113.7")
		if want := map[bool]int{true: 200, false: 429}[i < 3]; a.status != want {
			t.Errorf("request %d behind a trusted proxy: %+v, want %d", i, a, want)
		}
	}
	if a := get(t, c, base, "203.0.113.8"); a.status != 200 {
		t.Errorf("another client of the proxy: %+v", a)
	}
}

// checkAllow sends requests while no node can be reached.
func checkAllow(t *testing.T, c *http.Client, base string) {
	for range 5 {
		a := get(t, c, base, "")
		if a.status != 200 || a.header.Get("RateLimit") != "" ||
			!strings.Contains(a.body, "hello") {
			t.Errorf("without a node: %+v", a)
		}
	}
}

func checkDeny(t *testing.T, c *http.Client, base string) {
	a := get(t, c, base, "")
	checkProblem(t, a, 503, "no decision about the limits of this request", "1")
}

// milliseconds matches a wait that differs from run to run.
var milliseconds = regexp.MustCompile(`"retry_after_ms":(\d+)}$`)

// checkProblem checks an answer to a request that did not pass. A refusal has its id in the header
// and in the body.
func checkProblem(t *testing.T, a answer, status int, detail, wait string) {
	t.Helper()
	title, _ := json.Marshal(http.StatusText(status))
	id := a.header.Get("Twotier-Refusal")
	if (id != "") != (status == http.StatusTooManyRequests) {
		t.Errorf("the answer with %d has the refusal %q", status, id)
	}
	if id != "" {
		id = `"id":"` + id + `",`
	}
	want := `{"title":` + string(title) + `,"status":` + strconv.Itoa(status) + `,"detail":"` +
		detail + `",` + id + `"retry_after_ms":N}`
	var ms, seconds int
	if m := milliseconds.FindStringSubmatch(a.body); m != nil {
		ms, _ = strconv.Atoi(m[1])
		seconds, _ = strconv.Atoi(wait)
	}
	if got := milliseconds.ReplaceAllString(a.body, `"retry_after_ms":N}`); got != want ||
		seconds != (ms+999)/1000 {
		t.Errorf("the body is %s, want %s and %s s", a.body, want, wait)
	}
	kind := a.header.Get("Content-Type")
	if a.status != status || kind != "application/problem+json" ||
		a.header.Get("Retry-After") != wait || a.header.Get("Content-Length") == "" {
		t.Errorf("a refusal has %d and %v, want %d", a.status, a.header, status)
	}
}
