package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	documents "twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/child"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/redistest"
)

// loginRule has the rule that the configurations in deploy/ name, rules on open holds, and one that
// bans.
type loginRule struct{}

func (loginRule) Rules() *twotier.RuleSet {
	minute := []twotier.RuleLimit{{Window: 60_000, Max: 3, Text: "1m"}}
	return twotier.NewRuleSet([]twotier.Rule{{Name: "login", Limits: minute},
		{Name: "calls", Limits: minute, Concurrent: 2}, {Name: "call", Concurrent: 1},
		{Name: "watched", Concurrent: 1, State: twotier.RuleShadow},
		{Name: "strict", Limits: minute, Ban: 600_000}})
}

func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

// proxied is a proxy with a configuration of deploy/, between a client and an application.
type proxied struct {
	t    *testing.T
	base string
	// long is how many headers of 3,000 bytes the client sends.
	long int
	// The application sends its record of each request here.
	told chan string
}

// proxy starts a program with a file of deploy/ in which the addresses are replaced by those for b
// and for an application that records its requests. args returns its arguments.
func proxy(t *testing.T, b *bed, file, program string, args func(path string) []string) *proxied {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("there is no %s on this machine", program)
	}
	p := &proxied{t: t, told: make(chan string, 100)}
	application := httptest.NewServer(p)
	t.Cleanup(application.Close)
	text := must.Read(t, filepath.Join("..", "..", "..", "deploy", file))
	address := freeAddress(t)
	p.base = "http://" + address
	dir := t.TempDir()
	config := filepath.Join(dir, filepath.Base(file))
	changed := strings.NewReplacer("127.0.0.1:8000", address,
		"127.0.0.1:8080", strings.TrimPrefix(b.base, "http://"),
		"127.0.0.1:3000", strings.TrimPrefix(application.URL, "http://")).Replace(text)
	must.Write(t, config, changed)
	p.run(exec.Command(path, args(config)...), dir, address)
	return p
}

// ServeHTTP is the application.
func (p *proxied) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.told <- r.Method + " " + r.RequestURI + " " + string(body)
	if r.URL.Path == "/forbidden" {
		w.WriteHeader(http.StatusForbidden)
	}
}

// run starts the proxy and waits until it accepts connections.
func (p *proxied) run(cmd *exec.Cmd, dir, address string) {
	p.t.Helper()
	output, err := os.Create(filepath.Join(dir, "output"))
	must.Succeed(p.t, err)
	defer output.Close()
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.Stdout, cmd.Stderr = output, output
	c, err := child.Start(cmd)
	must.Succeed(p.t, err)
	p.t.Cleanup(func() {
		if err := c.Terminate(10 * time.Second); err != nil {
			p.t.Error(err)
		}
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return
		}
		if c.Exited() || time.Now().After(end) {
			text, _ := os.ReadFile(output.Name())
			p.t.Fatalf("%s does not listen: %s", cmd, text)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

// ask sends a request and returns the response, and the application's record of the request, "" if
// it received none.
func (p *proxied) ask(path, body string) (*http.Response, string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.base+path,
		strings.NewReader(body))
	must.Succeed(p.t, err)
	request.Header.Set("X-Forwarded-For", fmt.Sprintf("1.2.3.%d", len(body))) // made up
	for i := range p.long {
		request.Header.Set(fmt.Sprintf("X-Long-%d", i), strings.Repeat("x", 3000))
	}
	response, err := http.DefaultClient.Do(request)
	must.Succeed(p.t, err)
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		p.t.Error(err)
	}
	response.Body.Close()
	select {
	case told := <-p.told:
		return response, told
	default:
		return response, ""
	}
}

// limits checks that three requests pass and the fourth is refused, whatever addresses the client
// forges.
func (p *proxied) limits() {
	p.t.Helper()
	for i := range 4 {
		body := strings.Repeat("x", i)
		r, told := p.ask("/a?b="+body, body)
		wantStatus, wantTold, wantRetry := 200, "POST /a?b="+body+" "+body, false
		if i == 3 {
			wantStatus, wantTold, wantRetry = 429, "", true
		}
		if r.StatusCode != wantStatus || told != wantTold {
			p.t.Errorf("request %d: %d, told %q; want %d, %q", i, r.StatusCode, told, wantStatus,
				wantTold)
		}
		if got := r.Header.Get("RateLimit-Policy"); got != `"login";q=3;w=60` {
			p.t.Errorf("request %d: RateLimit-Policy %s", i, got)
		}
		if got := r.Header.Get("RateLimit"); !strings.HasPrefix(got,
			fmt.Sprintf(`"login";r=%d`, max(0, 2-i))) {
			p.t.Errorf("request %d: RateLimit %s", i, got)
		}
		if got := r.Header.Get("Retry-After"); (got != "") != wantRetry {
			p.t.Errorf("request %d: Retry-After %q", i, got)
		}
	}
}

func TestNginx(t *testing.T) {
	b := start(t, kind{"embedded", "key"}, true)
	p := proxy(t, b, "nginx/nginx.conf", "nginx", func(path string) []string {
		return []string{"-p", filepath.Dir(path) + "/", "-c", path, "-e", "stderr"}
	})
	if r, _ := p.ask("/forbidden", ""); r.StatusCode != http.StatusForbidden {
		t.Errorf("a 403 of the application became %d", r.StatusCode)
	}
	b.mono.Add(int64(2 * time.Minute))
	p.limits()
	b.mono.Add(int64(2 * time.Minute))
	p.long = 6
	p.limits()
	b.stop()
	if r, told := p.ask("/a", ""); r.StatusCode != http.StatusOK || told == "" {
		t.Errorf("without twotier: %d, told %q", r.StatusCode, told)
	}
}

func TestCaddy(t *testing.T) {
	b := start(t, kind{"embedded", "key"}, true)
	p := proxy(t, b, "caddy/Caddyfile", "caddy", func(path string) []string {
		return []string{"run", "--config", path, "--adapter", "caddyfile"}
	})
	p.limits()
	b.mono.Add(int64(2 * time.Minute))
	p.long = 6
	p.limits()
	b.stop()
	if r, told := p.ask("/a", ""); r.StatusCode != http.StatusBadGateway || told != "" {
		t.Errorf("without twotier: %d, told %q", r.StatusCode, told)
	}
}

// edgeDomain are the domains of the beds.
func edgeDomain(t *testing.T) *documents.Book {
	t.Helper()
	doc, err := documents.Read("edge.yaml", []byte(`
domain: edge
descriptors:
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: cost, charge: always, rate_limit: {unit: minute, requests_per_unit: 5}}
`))
	must.Succeed(t, err)
	book := new(documents.Book)
	book.Set(doc, 1)
	return book
}

// TestEnvoyDecidesAsAcquire sends the same random requests to two nodes, to one as requests of
// Envoy and to the other as acquires over the same keys, some of which are charged. They make the
// same decisions, for the same reasons, and have the same counts.
func TestEnvoyDecidesAsAcquire(t *testing.T) {
	for _, k := range kinds(t) {
		t.Run(k.mode+"/"+k.expiry, func(t *testing.T) {
			t.Parallel()
			a, b := start(t, k, true), start(t, k, true)
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 1))
			refused := 0
			for i := range 60 {
				var descriptors, checks []string
				charge := false
				for range 1 + random.IntN(3) {
					key, limit := "ip", `{"window":"1m","max":5}`
					switch random.IntN(5) {
					case 0, 1:
						key, limit = "user", `{"window":"1h","max":9}`
					case 2:
						key, charge = "cost", true
					}
					value, n := random.IntN(3), 1+random.IntN(3)
					descriptors = append(descriptors, fmt.Sprintf(
						`{"entries":[{"key":"%s","value":"%d"}],"hitsAddend":"%d"}`, key, value, n))
					checks = append(checks, fmt.Sprintf(
						`{"ns":"edge","key":"%s=%d","n":%d,"limits":[%s]}`, key, value, n, limit))
				}
				asked := `"descriptors":[` + strings.Join(descriptors, ",") + `]`
				got := a.limits(t, `{"domain":"edge",`+asked+`}`)
				want := b.ok("/v1/acquire", fmt.Sprintf(`{"charge":%t,"checks":[%s]}`, charge,
					strings.Join(checks, ",")))
				text := fmt.Sprint(want.Allowed)
				for _, c := range want.Checks {
					text += fmt.Sprint(" ", c.Allowed)
					if c.Allowed {
						text += fmt.Sprint(" ", c.Limits[0].Remaining)
					}
				}
				if got != text {
					t.Fatalf("seed %d, request %d, %s: %s, want %s", seed, i, asked, got, text)
				}
				if !want.Allowed {
					refused++
				}
				pause := random.Int64N(int64(20 * time.Second))
				a.mono.Add(pause)
				b.mono.Add(pause)
			}
			if refused == 0 {
				t.Errorf("seed %d: nothing was refused", seed)
			}
		})
	}
}

// limits sends a request of Envoy, and formats whether the request and each descriptor were
// allowed, with the remaining hits.
func (b *bed) limits(t *testing.T, body string) string {
	t.Helper()
	r, err := http.Post(b.base+"/json", "application/json", strings.NewReader(body))
	must.Succeed(t, err)
	defer r.Body.Close()
	var answer struct {
		OverallCode string
		Statuses    []struct {
			Code           string
			LimitRemaining int64
		}
	}
	must.Succeed(t, json.NewDecoder(r.Body).Decode(&answer))
	if (r.StatusCode == http.StatusOK) != (answer.OverallCode == "OK") {
		t.Errorf("status %d of %s", r.StatusCode, answer.OverallCode)
	}
	text := fmt.Sprint(answer.OverallCode == "OK")
	for _, s := range answer.Statuses {
		text += fmt.Sprint(" ", s.Code == "OK")
		if s.Code == "OK" {
			text += fmt.Sprint(" ", s.LimitRemaining)
		}
	}
	return text
}

// TestClusterOfProcesses runs three processes over one Redis. They admit exactly the limit between
// them, before and after one is killed, and lose nothing that was acknowledged with ack=redis, or
// at all when they stop.
func TestClusterOfProcesses(t *testing.T) {
	t.Parallel()
	program := proctest.NewProgramFrom(t, "", fmt.Sprint("-race=", race.Enabled))
	c := proctest.NewCluster(t, program, redistest.Start(t), proctest.Loopback())
	c.Grow(3)

	const limit, counted = 50, 200
	if n := admitted(t, c.Nodes[0], c.Nodes[1], c.Nodes[2]); n != limit {
		t.Errorf("three nodes admit %d of a limit of %d", n, limit)
	}
	want := map[string]int64{}
	for i := range counted {
		key := fmt.Sprint("counted-", i)
		c.Nodes[i%3].MustPost("/v1/add", fmt.Sprintf(`{"key":%q,"ack":"redis"}`, key))
		want[key] = 1
	}
	c.Kill(2)
	c.Settled()
	if n := admitted(t, c.Nodes[0], c.Nodes[1]); n != 0 {
		t.Errorf("two nodes admit %d beyond the limit", n)
	}
	for key := range want {
		if n := c.Nodes[0].Count(key, "1h").Counts[0].Count; n != 1 {
			t.Errorf("%s: %d, want 1", key, n)
		}
		c.Nodes[1].MustPost("/v1/add", fmt.Sprintf(`{"key":%q}`, key))
		want[key] = 2
	}
	c.Stop(1)
	c.Stop(0)
	c.Holds(want)
}

// admitted sends a hundred requests for one key with a limit of 50 to nodes, in turn and all at
// once, and returns how many the nodes admit.
func admitted(t *testing.T, nodes ...*proctest.Process) int64 {
	t.Helper()
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			status, body, err := nodes[i%len(nodes)].Post("/v1/acquire",
				`{"key":"limited","limits":[{"window":"1h","max":50}],"ack":"redis"}`)
			var verdict struct{ Allowed bool }
			if err != nil || status != http.StatusOK || json.Unmarshal(body, &verdict) != nil {
				t.Errorf("%d %s %v", status, body, err)
			}
			if verdict.Allowed {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	return admitted.Load()
}
