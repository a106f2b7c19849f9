// Package switching moves the state that other limiters' scripts have made to a real server, and
// compares it with a log of the events.
package switching

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

var program = proctest.NewProgram()

func TestMain(m *testing.M) { proctest.Main(m, program, 4) }

const (
	minute = int64(60_000)
	day    = 24 * 60 * minute
)

// bed is a limiter's Redis beside a server with a Redis for its own counts.
type bed struct {
	*testing.T
	old    *redis.Client
	from   string
	store  *redistest.Server
	server *proctest.Process
}

// newBed starts both. flags are for the server.
func newBed(t *testing.T, flags ...string) *bed {
	t.Helper()
	source := redistest.Start(t)
	old := redis.NewClient(&redis.Options{Addr: source.Addr(), Protocol: 2})
	t.Cleanup(func() { old.Close() })
	b := &bed{T: t, old: old, from: source.URL(), store: redistest.Start(t)}
	b.server = program.Serve(t, proctest.Options{},
		append([]string{"--redis", b.store.URL(), "--node", "a"}, flags...)...)
	return b
}

// eval runs a script of deploy/switching.
func (b *bed) eval(script, key string, args ...any) int64 {
	b.Helper()
	text := must.Read(b.T, filepath.Join("..", "..", "..", "deploy", "switching", script+".lua"))
	n, err := b.old.Eval(b.Context(), text, []string{key}, args...).Int64()
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// report is the report of an import.
type report struct {
	Keys, Events, Counted, Repeated, Later, Ahead, Unreadable int64
	Meanwhile                                                 int64
	TooOld                                                    int64 `json:"too_old"`
	FailedKeys                                                int64 `json:"failed_keys"`
	Failed                                                    []struct{ Key, Error string }
	Formats                                                   map[string]int64
	Oldest, Newest                                            int64
	Warnings                                                  []string
	First                                                     struct {
		From, Key string
		Events    int64
	}
}

// command returns the command that imports.
func (b *bed) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program.Path(b.T), append([]string{"import", "--from", b.from, "--json"},
		args...)...)
	cmd.Env = append(os.Environ(), "TWOTIER_SERVER="+b.server.Base)
	return cmd
}

// tryImport imports and returns the report.
func (b *bed) tryImport(args ...string) (r report, err error) {
	var out, text bytes.Buffer
	cmd := b.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &text
	if err := cmd.Run(); err != nil {
		_ = json.Unmarshal(out.Bytes(), &r) // there is a report if some keys failed
		return r, fmt.Errorf("%w: %s", err, text.String())
	}
	return r, json.Unmarshal(out.Bytes(), &r)
}

// imports imports while no other import runs, which must succeed.
func (b *bed) imports(args ...string) report {
	b.Helper()
	r, err := b.tryImport(args...)
	if err != nil {
		b.Fatalf("import %v: %v", args, err)
	}
	r.Counted, r.Meanwhile = r.Counted+r.Meanwhile, 0 // answers of this import that got lost
	return r
}

// bounds are the bounds of a count.
type bounds struct{ Count, Min, Max int64 }

// count counts a key over a window.
func (b *bed) count(key, window string) bounds {
	b.Helper()
	var a struct{ Counts []bounds }
	if err := b.server.Ask("/v1/count?window="+window+"&key="+key, "", &a); err != nil {
		b.Fatal(err)
	}
	return a.Counts[0]
}

// verdict is the answer to an acquire.
type verdict struct {
	Allowed bool
	Retry   int64 `json:"retry_after_ms"`
}

// acquire acquires one event of a key.
func (b *bed) acquire(key, window string, most int) (v verdict) {
	b.Helper()
	body := fmt.Sprintf(`{"key":%q,"limits":[{"window":%q,"max":%d}]}`, key, window, most)
	if err := b.server.Ask("/v1/acquire", body, &v); err != nil {
		b.Fatal(err)
	}
	return v
}

// log is an exact log of the times of a key's events.
type log []int64

// within returns how many events the window that ends now has.
func (l log) within(window int64) (n int64) {
	now := time.Now().UnixMilli()
	for _, ts := range l {
		if ts > now-window {
			n++
		}
	}
	return n
}
