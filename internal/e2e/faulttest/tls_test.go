package faulttest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/testing/testca"
)

// authority signs certificates and keeps them in files.
type authority struct {
	t    *testing.T
	ca   *testca.CA
	dir  string
	path string // of its certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca, err := testca.New()
	must.Succeed(t, err)
	a := &authority{t: t, ca: ca, dir: t.TempDir()}
	a.path = filepath.Join(a.dir, "ca.pem")
	a.write(a.path, ca.PEM)
	return a
}

func (a *authority) write(path string, text []byte) {
	a.t.Helper()
	must.Write(a.t, path, text)
}

// issue writes a certificate with a serial number, valid for a server on loopback and for a client,
// and its key.
func (a *authority) issue(name string, serial int64) (cert, key string) {
	a.t.Helper()
	return a.issueUntil(name, serial, time.Now().Add(time.Hour))
}

// issueUntil is issue for a certificate that is valid until end.
func (a *authority) issueUntil(name string, serial int64, end time.Time) (cert, key string) {
	a.t.Helper()
	signed, private, err := a.ca.Issue(serial, end)
	must.Succeed(a.t, err)
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	a.write(key, private)
	a.write(cert, signed)
	return cert, key
}

// client returns a client that trusts the authority and presents a certificate, unless pair is nil.
func (a *authority) client(pair *tls.Certificate) *http.Client {
	secure := &tls.Config{RootCAs: a.ca.Pool()}
	if pair != nil {
		secure.Certificates = []tls.Certificate{*pair}
	}
	c := &http.Client{Timeout: 20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}
	a.t.Cleanup(c.CloseIdleConnections)
	return c
}

func (a *authority) pair(name string) *tls.Certificate {
	a.t.Helper()
	cert, key := a.issue(name, 7)
	pair, err := tls.LoadX509KeyPair(cert, key)
	must.Succeed(a.t, err)
	return &pair
}

// TestAttackWithoutACertificate checks that with TLS no listener answers plain text, or a client
// without a certificate of the right authority. A replaced certificate is served without a restart.
func TestAttackWithoutACertificate(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t), newAuthority(t)
	cert, key := ours.issue("node", 100)
	file := newTokenFile(t)
	admin := file.add("operator", twotier.AnyRole, "*")
	p := program.Serve(t, proctest.Options{}, "--tls-cert", cert, "--tls-key", key,
		"--tls-client-ca", ours.path,
		"--admin", "127.0.0.1:0", "--tokens", file.path)
	known := ours.client(ours.pair("client"))
	for _, address := range []string{p.Listen, p.Admin} {
		base := "https://" + address
		if code, body := ask(t, known, admin, "GET", base+"/metrics", ""); code != 200 {
			t.Errorf("%s: %d %s", address, code, body)
		}
		for name, c := range map[string]*http.Client{"no certificate": ours.client(nil),
			"of another authority": ours.client(others.pair("client"))} {
			if res, err := c.Get(base + "/healthz"); err == nil {
				t.Errorf("%s: %s: %d", address, name, res.StatusCode)
				res.Body.Close()
			}
		}
		if res, err := http.Get("http://" + address + "/healthz"); err == nil {
			t.Errorf("%s: plain text: %d", address, res.StatusCode)
			res.Body.Close()
		}
	}
	serial := func() int {
		res, err := known.Get("https://" + p.Listen + "/healthz")
		if err != nil {
			return 0 // between the two files
		}
		defer res.Body.Close()
		return int(res.TLS.PeerCertificates[0].SerialNumber.Int64())
	}
	if got := serial(); got != 100 {
		t.Fatalf("serial number %d", got)
	}
	ours.issue("node", 101)
	until(t, 101, serial)
	out, err := command(t, []string{
		"TWOTIER_SERVER=https://" + p.Listen, "TWOTIER_TOKEN=" + admin, "TWOTIER_CA=" + ours.path,
		"TWOTIER_CERT=" + filepath.Join(ours.dir, "client.pem"), "TWOTIER_KEY=" +
			filepath.Join(ours.dir, "client.key"),
	}, "add k")
	if err != nil || !strings.Contains(out, "added 1") {
		t.Errorf("the command: %v %s", err, out)
	}
}

// TestAttackOnAdministration checks that with --admin the main listener serves no administration,
// and that administration always needs a token.
func TestAttackOnAdministration(t *testing.T) {
	t.Parallel()
	file := newTokenFile(t)
	admin, reads := file.add("operator", twotier.AnyRole, "*"), file.add("scraper",
		twotier.RoleRead, "*")
	apart := program.Serve(t, proctest.Options{}, "--admin", "127.0.0.1:0", "--tokens",
		file.path)
	bare := program.Serve(t, proctest.Options{}, "--admin", "127.0.0.1:0")
	const mode = `{"mode":"two-tier"}`
	for _, tt := range []struct {
		base, secret, method, path, body string
		want                             int
	}{
		{apart.Listen, admin, "POST", "/v1/admin/mode", mode, 404},
		{apart.Listen, admin, "GET", "/debug/pprof/heap", "", 404},
		{apart.Admin, admin, "POST", "/v1/add", `{"key":"k"}`, 404},
		{apart.Admin, admin, "POST", "/peer", "", 404},
		{apart.Admin, "", "GET", "/debug/pprof/heap", "", 401},
		{apart.Admin, reads, "GET", "/debug/pprof/heap", "", 403},
		{apart.Admin, admin, "GET", "/debug/pprof/heap", "", 200},
		{apart.Admin, admin, "GET", "/debug/pprof/profile?seconds=1", "", 200},
		{apart.Admin, reads, "GET", "/metrics", "", 200},
		{apart.Admin, "", "GET", "/healthz", "", 200},
		{bare.Admin, "", "GET", "/debug/pprof/heap", "", 403},
		{bare.Admin, "", "POST", "/v1/admin/mode", mode, 403},
	} {
		if code, body := ask(t, apart.HTTP, tt.secret, tt.method, "http://"+tt.base+tt.path,
			tt.body); code != tt.want {
			t.Errorf("%s: %d, want %d: %.200s", tt.path, code, tt.want, body)
		}
	}
}

// TestNodesTalkByTLS checks that two nodes that require certificates, each with --peer, act as one
// counter. Their peer listeners refuse messages of strangers, and their main listeners refuse
// messages of any node.
func TestNodesTalkByTLS(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	server := redistest.Start(t)
	cert, key := ours.issue("node", 1)
	known := ours.client(ours.pair("client"))
	args := []string{
		"--redis", "redis://" + server.Addr(), "--gossip", "127.0.0.1:0", "--cluster-secret",
		"a secret of the nodes",
		"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ours.path, "--peer", "127.0.0.1:0",
	}
	a := program.Serve(t, proctest.Options{}, args...)
	b := program.Serve(t, proctest.Options{}, append(args, "--join", a.Gossip)...)
	const keys = 50
	until(t, keys, func() int { // a hand-off may be in progress
		sources := 0
		for i := range keys {
			body := fmt.Sprintf(`{"key":"k%d"}`, i)
			code, text := ask(t, known, "", "POST", b.Base+"/v1/add", body)
			if code != 200 {
				t.Logf("%d %s", code, text)
			}
			if strings.Contains(text, `"source":"owner"`) ||
				strings.Contains(text, `"source":"memory"`) {
				sources++
			}
		}
		return sources
	})
	owners := 0
	for i := range keys {
		_, text := ask(t, known, "", "GET", fmt.Sprintf("%s/v1/count?key=k%d&window=1m", a.Base, i),
			"")
		if strings.Contains(text, `"source":"owner"`) {
			owners++
		}
	}
	if owners == 0 || owners == keys {
		t.Errorf("%d of %d keys are owned by the other node", owners, keys)
	}
	if code, _ := ask(t, known, "", "POST", a.Base+"/peer", "x"); code != 404 {
		t.Errorf("messages are taken where everyone is: %d", code)
	}
}

// TestRefusedCertificates checks that certificates that can't work are refused at start.
func TestRefusedCertificates(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	cert, key := ours.issue("a", 1)
	_, other := ours.issue("b", 2)
	empty := filepath.Join(ours.dir, "empty")
	must.Write(t, empty, "")
	for _, args := range [][]string{
		{"--tls-cert", cert}, {"--tls-cert", cert, "--tls-key", other},
		{"--tls-cert", cert, "--tls-key", cert},
		{"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", key},
		{"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", empty},
		{"--tls-client-ca", ours.path}, {"--tokens", cert},
		{"--tokens", filepath.Join(ours.dir, "none")},
	} {
		p, err := program.TryServe(t, proctest.Options{}, args...)
		if err == nil || p.ExitCode() == 0 || !strings.Contains(p.Log.String(), "--t") {
			t.Errorf("%v: %v: %s", args, err, p.Log.String())
		}
	}
}

// secretFile is a file that is replaced.
type secretFile struct {
	t    *testing.T
	path string
}

func newSecretFile(t *testing.T, lines ...string) *secretFile {
	t.Helper()
	f := &secretFile{t, filepath.Join(t.TempDir(), "secret")}
	f.write(lines...)
	return f
}

func (f *secretFile) write(lines ...string) {
	f.t.Helper()
	must.Write(f.t, f.path, strings.Join(lines, "\n")+"\n")
}

// reaches waits until a node has logged that every unreachable node answers again, for at most 20
// seconds.
func reaches(p *proctest.Process) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		log := p.Log.String()
		if strings.Count(log, "a node can't be reached") <=
			strings.Count(log, "a node answers again") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestSecretIsReplacedWithoutAPause moves two nodes from one secret to another under load. No
// request fails, the owner answers all of them, and in the end the old secret opens nothing.
func TestSecretIsReplacedWithoutAPause(t *testing.T) {
	t.Parallel()
	const old, next = "the secret of yesterday", "the secret of tomorrow"
	server := redistest.Start(t)
	file := newSecretFile(t, old)
	here := proctest.Host() + ":0" // no node of another test tries to reach one here
	args := []string{"--redis", "redis://" + server.Addr(), "--gossip", here,
		"--cluster-secret-file", file.path}
	a := program.Serve(t, proctest.Options{Listen: here}, args...)
	b := program.Serve(t, proctest.Options{Listen: here},
		append(args, "--join", a.Gossip)...)
	nodes := []*proctest.Process{a, b}
	owned := func(i int) bool { // the owner answers the request
		code, text := ask(t, a.HTTP, "", "POST", nodes[i%2].Base+"/v1/add",
			fmt.Sprintf(`{"key":"k%d"}`, i))
		return code == http.StatusOK && !strings.Contains(text, `"fallback"`)
	}
	used := func() int { // the number of requests that the owner answered
		n := 0
		for i := range 40 {
			if owned(i) {
				n++
				continue
			}
			// A busy machine may be late for one.
			if reaches(nodes[i%2]); owned(i) {
				n++
			}
		}
		for _, p := range nodes {
			if log := p.Log.String(); strings.Contains(log, "refused a message") {
				t.Fatalf("a secret was refused:\n%s", log)
			}
		}
		return n
	}
	until(t, 40, used)
	for step, lines := range [][]string{{old, next}, {next, old}, {next}} {
		file.write(lines...)
		for _, p := range nodes {
			for end := time.Now().Add(proctest.Patience); strings.Count(p.Log.String(),
				"read again") <= step; {
				if got := used(); got != 40 {
					t.Fatalf("step %d: the owner answered %d of 40", step, got)
				}
				if time.Now().After(end) {
					t.Fatalf("step %d: the file was not read again", step)
				}
			}
		}
		if got := used(); got != 40 {
			t.Fatalf("after step %d the owner answered %d of 40", step, got)
		}
	}
	stranger := newSecretFile(t, old)
	p, err := program.TryServe(t, proctest.Options{}, "--redis", "redis://"+server.Addr(),
		"--gossip", here, "--node", "stranger", "--cluster-secret-file", stranger.path,
		"--join", a.Gossip)
	if err == nil || p.ExitCode() != 1 ||
		!strings.Contains(p.Log.String(), "is the cluster secret the same?") {
		t.Errorf("a node with the old secret: %v: %s", err, p.Log.String())
	}
	if log := a.Log.String(); strings.Contains(log, "member=stranger") {
		t.Errorf("what it says by the old secret is heard:\n%s", log)
	}
	p, err = program.TryServe(t, proctest.Options{}, append(args, "--join", a.Gossip)...)
	if err != nil {
		t.Errorf("a node with the new one: %v: %s", err, p.Log.String())
	}
}

// TestRedisPasswordIsReplaced changes Redis's password, and the file, and cuts all connections.
func TestRedisPasswordIsReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	direct := server.Client(t)
	ctx := context.Background()
	set := func(password string) {
		t.Helper()
		must.Succeed(t, direct.Do(ctx, "ACL", "SETUSER", "counter", "reset", "on", ">"+password,
			"~tt:*", "+@all").Err())
	}
	set("first")
	file := newSecretFile(t, "first")
	p := program.Serve(t, proctest.Options{}, "--redis", "redis://counter@"+server.Addr(),
		"--redis-password-file", file.path)
	const body = `{"key":"k","ack":"redis"}`
	if code, text, err := p.Post("/v1/add", body); err != nil || code != 200 {
		t.Fatalf("%v %d %s", err, code, text)
	}
	file.write("second")
	set("second")
	must.Succeed(t, direct.Do(ctx, "CLIENT", "KILL", "USER", "counter").Err())
	until(t, 200, func() int { code, _, _ := p.Post("/v1/add", body); return code })
	if strings.Contains(p.Log.String(), "second") {
		t.Error("the password is in the log")
	}
}
