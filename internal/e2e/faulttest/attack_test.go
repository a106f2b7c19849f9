package faulttest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/token"
)

// tokenFile is a file of tokens that can be changed.
type tokenFile struct {
	t     *testing.T
	path  string
	lines map[string]string
}

func newTokenFile(t *testing.T) *tokenFile {
	return &tokenFile{t: t, path: filepath.Join(t.TempDir(), "tokens.conf"),
		lines: map[string]string{}}
}

// add makes a token and returns it.
func (f *tokenFile) add(name string, roles twotier.Role, namespaces string) string {
	f.t.Helper()
	text, hash := token.New()
	line, err := token.FormatLine(name, hash, roles, namespaces)
	must.Succeed(f.t, err)
	f.lines[name] = line
	f.write()
	return text
}

func (f *tokenFile) remove(name string) {
	delete(f.lines, name)
	f.write()
}

func (f *tokenFile) write() {
	f.t.Helper()
	text := "# tokens of a test\n"
	for _, line := range f.lines {
		text += line + "\n"
	}
	must.Write(f.t, f.path, text)
}

// ask makes a request with a token and returns the status and the body.
func ask(t *testing.T, c *http.Client, secret, method, url, body string) (int, string) {
	t.Helper()
	var token []string
	if secret != "" {
		token = []string{"Authorization", "Bearer " + secret}
	}
	res, text, err := proctest.Send(c, method, url, body, token...)
	must.Succeed(t, err)
	if res.StatusCode >= 400 && res.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %s: %d is no problem but %s", method, url, res.StatusCode,
			res.Header.Get("Content-Type"))
	}
	return res.StatusCode, text
}

// until repeats a request until it gets the wanted status, because files are only reloaded within a
// second.
func until(t *testing.T, want int, try func() int) {
	t.Helper()
	proctest.UntilNil(t, fmt.Sprint("the answer is ", want), func() error {
		if got := try(); got != want {
			return fmt.Errorf("still %d", got)
		}
		return nil
	})
}

// TestAttackWithoutATokenBeyondLoopback checks that a server that others can reach only starts with
// tokens or --insecure: without tokens anyone who can connect could do everything.
func TestAttackWithoutATokenBeyondLoopback(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		p, err := program.TryServe(t, proctest.Options{Listen: listen})
		if err == nil || p.ExitCode() != 2 || !strings.Contains(p.Log.String(), "--insecure") ||
			!strings.Contains(p.Log.String(), "--tokens") {
			t.Errorf("%s: %v, status %d, %s", listen, err, p.ExitCode(), p.Log.String())
		}
	}
	p := program.Serve(t, proctest.Options{Listen: "0.0.0.0:0"}, "--insecure")
	proctest.Until(t, "the log warns of --insecure", func() bool {
		return strings.Contains(p.Log.String(),
			"--insecure: whoever can connect may count, read and reset")
	})
	file := newTokenFile(t)
	secret := file.add("a", twotier.RoleCount, "*")
	p = program.Serve(t, proctest.Options{Listen: "0.0.0.0:0"}, "--tokens", file.path)
	if code, _ := ask(t, p.HTTP, secret, "POST", p.Base+"/v1/add", `{"key":"k"}`); code != 200 {
		t.Errorf("with a token: %d", code)
	}
}

// TestAttackWithoutTheRightToken tries the attacks of a stranger, a thief of another token and a
// former colleague.
func TestAttackWithoutTheRightToken(t *testing.T) {
	t.Parallel()
	file := newTokenFile(t)
	counts := file.add("shop", twotier.RoleCount, "default")
	reads := file.add("scraper", twotier.RoleRead, "*")
	admin := file.add("operator", twotier.AnyRole, "*")
	p := program.Serve(t, proctest.Options{}, "--tokens", file.path)
	const key = `{"key":"victim"}`
	for i, tt := range []struct {
		secret, method, path, body string
		want                       int
	}{
		{"", "POST", "/v1/add", key, 401},
		{"", "POST", "/v1/reset", key, 401},
		{"", "GET", "/metrics", "", 401},
		{"", "GET", "/v1/top", "", 401},
		{"", "GET", "/healthz", "", 200},
		{"", "GET", "/readyz", "", 200},
		{"", "GET", "/", "", 200},
		{"tt_" + strings.Repeat("A", 43), "POST", "/v1/add", key, 401},
		{counts, "POST", "/v1/add", key, 200},
		{counts, "POST", "/v1/add", `{"key":"victim","ns":"other"}`, 403},
		{counts, "POST", "/v1/reset", key, 403},
		{counts, "GET", "/metrics", "", 403},
		{counts, "GET", "/v1/count?key=victim&window=1m", "", 403},
		{reads, "GET", "/v1/count?key=victim&window=1m", "", 200},
		{reads, "GET", "/metrics", "", 200},
		{reads, "POST", "/v1/add", key, 403},
		{reads, "POST", "/v1/admin/mode", `{"mode":"two-tier"}`, 403},
		{admin, "POST", "/v1/reset", `{"key":"another"}`, 200},
	} {
		if code, body := ask(t, p.HTTP, tt.secret, tt.method, p.Base+tt.path,
			tt.body); code != tt.want {
			t.Errorf("%d, %s: %d, want %d: %s", i, tt.path, code, tt.want, body)
		}
	}
	count := func(secret string) func() int {
		return func() int {
			code, _ := ask(t, p.HTTP, secret, "POST", p.Base+"/v1/add", key)
			return code
		}
	}
	file.remove("shop")
	until(t, 401, count(counts))
	until(t, 200, count(file.add("new", twotier.RoleCount, "default")))
	if strings.Contains(p.Log.String(), "tt_") {
		t.Error("a token is in the log")
	}
}

// TestClientsWithAToken checks that the library and the commands work with a token.
func TestClientsWithAToken(t *testing.T) {
	t.Parallel()
	file := newTokenFile(t)
	secret := file.add("app", twotier.AnyRole, "*")
	p := program.Serve(t, proctest.Options{}, "--tokens", file.path)
	c, err := client.New(client.Options{Addresses: []string{p.Listen}, Token: secret})
	must.Succeed(t, err)
	defer c.Close(context.Background())
	if err := c.Refresh(t.Context()); err != nil {
		t.Errorf("the table: %v", err)
	}
	if _, err := c.Add(t.Context(), client.AddRequest{Key: "k", N: 3}); err != nil {
		t.Error(err)
	}
	must.Write(t, file.path+".app", secret+"\n")
	for _, tt := range []struct {
		line, env, want string
	}{
		{"count k --window 1m", "TWOTIER_TOKEN=" + secret, "3"},
		{"count k --window 1m --token " + secret, "", "3"},
		{"top --token-file " + file.path + ".app", "TWOTIER_TOKEN=wrong", "k"},
		{"count k --window 1m", "TWOTIER_TOKEN_FILE=" + file.path + ".app", "3"},
		{"reset k", "TWOTIER_TOKEN=" + secret, "k"},
	} {
		out, err := command(t, []string{"TWOTIER_SERVER=" + p.Base, tt.env}, tt.line)
		if err != nil || !strings.Contains(out, tt.want) || strings.Contains(out, "errors:") {
			t.Errorf("%s: %v %s", tt.line, err, out)
		}
	}
	if _, err := command(t, []string{"TWOTIER_SERVER=" + p.Base}, "add k"); err == nil ||
		!strings.Contains(err.Error(), "TWOTIER_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
}

// command runs a command line of the program within this process.
func command(t *testing.T, environ []string, line string) (string, error) {
	t.Helper()
	var out strings.Builder
	o := cli.IO{Environ: environ, Stdout: &out, Stderr: io.Discard}
	root := &cobra.Command{Use: "twotier"}
	root.AddCommand(cli.Commands(o)...)
	cli.Prepare(root, o)
	root.SetArgs(strings.Fields(line))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestAttackWithOtherSpellings checks that a path that a proxy forbids can't be reached with
// another spelling, from a page of another site, or by a request hidden in another one.
func TestAttackWithOtherSpellings(t *testing.T) {
	t.Parallel()
	p := program.Serve(t, proctest.Options{})
	const key = `{"key":"victim"}`
	p.MustPost("/v1/add", key)
	raw := func(text string) (status int, closed bool) {
		c, err := net.Dial("tcp", p.Listen)
		must.Succeed(t, err)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprint(c, text)
		r := bufio.NewReader(c)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode, res.Close
	}
	request := func(path, host, more string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n%s\r\n%s", path,
			host, len(key), more, key)
	}
	for _, path := range []string{"/v1%2freset", "//v1/reset", "/v1/./reset", "/x/../v1/reset",
		"/v1//reset", "/v1/reset/"} {
		if status, _ := raw(request(path, "localhost", "")); status != 404 {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status,
		_ := raw(request("/v1/reset", "evil.example",
		"Origin: http://evil.example\r\n")); status != 403 {
		t.Errorf("a page whose name was pointed here: %d", status)
	}
	smuggling := "POST /v1/add HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
		"4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
		request("/v1/reset", "localhost", "")
	if status, closed := raw(smuggling); status != 400 || !closed {
		t.Errorf("two lengths: %d, closed %v", status, closed)
	}
	if got := p.Count("victim", "1m").Counts[0].Max; got != 1 {
		t.Errorf("the victim has %d, want 1", got)
	}
}

// helloOf returns the first message of a handshake.
func helloOf(t *testing.T) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		// The end of the pipe ends the handshake.
		_ = tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake()
		client.Close()
	}()
	hello := make([]byte, 64)
	if _, err := io.ReadFull(server, hello); err != nil {
		t.Fatal(err)
	}
	return hello
}

// TestAttackByHandshakes fills all connections that one address may have with handshakes that
// proceed byte by byte and never end. Clients at other addresses must be served, and each handshake
// must be cut off.
func TestAttackByHandshakes(t *testing.T) {
	t.Parallel()
	const most = 20
	ours := newAuthority(t)
	cert, key := ours.issue("node", 1)
	p := program.Serve(t, proctest.Options{}, "--tls-cert", cert, "--tls-key", key,
		"--max-connections", fmt.Sprint(2*most), "--max-connections-per-address", fmt.Sprint(most))
	hello := helloOf(t)
	cut := make(chan error, most)
	for range most {
		conn, err := net.Dial("tcp", p.Listen)
		must.Succeed(t, err)
		t.Cleanup(func() { conn.Close() })
		go func() {
			for _, b := range hello {
				if _, err := conn.Write([]byte{b}); err != nil {
					break
				}
				time.Sleep(300 * time.Millisecond) // slow enough to take longer than allowed
			}
		}()
		go func() {
			_, err := io.Copy(io.Discard, conn)
			cut <- err
		}()
	}
	elsewhere := ours.client(nil)
	elsewhere.Transport.(*http.Transport).
		DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
	add := func() int {
		code, body := ask(t, elsewhere, "", "POST", "https://"+p.Listen+"/v1/add", `{"key":"k"}`)
		if code != 200 {
			t.Errorf("from elsewhere: %d %s", code, body)
		}
		return code
	}
	for range most {
		add()
	}
	for range most {
		select {
		case <-cut:
		case <-time.After(time.Minute):
			t.Fatal("a handshake that does not end is not cut off")
		}
		add()
	}
}

// TestPeerWithAnExpiredCertificate gives one node of a cluster an expired certificate. The others
// exchange no messages with it over TLS, every count still arrives through Redis, and the log names
// the problem.
func TestPeerWithAnExpiredCertificate(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	server := redistest.Start(t)
	known := ours.client(ours.pair("client"))
	// The client also asks the node whose certificate is not trusted.
	known.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	serve := func(cert, key string, more ...string) *proctest.Process {
		return program.Serve(t, proctest.Options{}, append([]string{
			"--redis", server.URL(), "--gossip", "127.0.0.1:0", "--cluster-secret",
			"a secret of the nodes",
			"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ours.path,
		}, more...)...)
	}
	cert, key := ours.issue("good", 1)
	good := serve(cert, key)
	cert, key = ours.issueUntil("expired", 2, time.Now().Add(-time.Minute))
	bad := serve(cert, key, "--join", good.Gossip)
	proctest.Until(t, "it says that its certificate has expired", func() bool {
		return strings.Contains(bad.Log.String(), "the certificate has expired")
	})
	const keys = 20
	for _, p := range []*proctest.Process{good, bad} {
		for i := range keys {
			proctest.Until(t, "the key is counted", func() bool {
				code, text := ask(t, known, "", "POST", p.Base+"/v1/add",
					fmt.Sprintf(`{"key":"k%d","ack":"redis"}`, i))
				if strings.Contains(text, `"source":"owner"`) {
					t.Errorf("a node was believed whose certificate has expired: %s", text)
				}
				return code == 200
			})
		}
	}
	for i := range keys {
		proctest.Until(t, "both counts are seen", func() bool {
			_, text := ask(t, known, "", "GET",
				fmt.Sprintf("%s/v1/count?key=k%d&window=1h", good.Base, i), "")
			return strings.Contains(text, `"max":2`)
		})
	}
}
