package acceptance

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	documents "twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/child"
	"twotier.dev/twotier/internal/testing/must"
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
