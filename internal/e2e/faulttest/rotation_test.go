package faulttest

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

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
