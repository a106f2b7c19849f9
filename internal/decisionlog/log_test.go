package decisionlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisionlog"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/trace"
)

// record returns the lines of decisions, with these sampling rates.
func record(t *testing.T, shares [twotier.VerdictCount]float64,
	all ...decisions.Decision) []string {
	t.Helper()
	var to strings.Builder
	l := open(t, decisionlog.Options{Writer: &to, Node: "a-1", Shares: shares})
	for i := range all {
		if v := all[i].Verdict; l.Receives(v) != (shares[v] > 0) {
			t.Errorf("receives %v: %v", v, l.Receives(v))
		}
		l.Record(&all[i])
	}
	end(t, l)
	return slices.Collect(strings.Lines(to.String()))
}

// TestLines compares lines, which are valid JSON whatever the key is.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		monthly, err := twotier.ParsePeriod("month.14@Europe/Lisbon")
		must.Succeed(t, err)
		time.Sleep(12 * time.Millisecond)
		got := record(t, [twotier.VerdictCount]float64{1, 1, 1, 1},
			decisions.Decision{Door: "http", NS: []byte("sms"), Key: []byte("alice"), N: 3,
				Rule: &twotier.Rule{Name: "receiver"}, Version: 7, Verdict: twotier.ShadowRefused,
				Limits: []twotier.LimitResult{{Window: 60_000, Count: 15, Max: 14},
					{Window: 90_000_000, Count: 15, Max: 50}}},
			decisions.Decision{Door: "http", Key: []byte("ann"), N: 2, Distinct: true,
				Verdict: twotier.Refused,
				Limits:  []twotier.LimitResult{{Window: 3_600_000, Count: 5, Max: 5}}, Trace: trace.
						Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")},
			decisions.Decision{Door: "http", Key: []byte("m"), N: 1,
				Limits: []twotier.LimitResult{{Period: monthly, Count: 1, Max: 9}}},
			decisions.Decision{Door: "resp", Key: []byte("\"käse\"\\\xff"), N: 1})
		const when = `{"time":"2000-01-01T00:00:00.012Z","ns":`
		want := []string{`"sms","rule":"receiver","key":"alice","n":3,` +
			`"verdict":"shadow_refused","door":"http",` +
			`"limits":[{"window":"1m","count":15,"max":14},{"window":"25h","count":15,"max":50}],` +
			`"node":"a-1","rules_version":7}`,
			`"default","key":"ann","n":2,"distinct":true,"verdict":"refused","door":"http",` +
				`"limits":[{"window":"1h","count":5,"max":5}],` +
				`"node":"a-1","trace_id":"0af7651916cd43dd8448eb211c80319c"}`,
			`"default","key":"m","n":1,"verdict":"allowed","door":"http",` +
				`"limits":[{"window":"month.14@Europe/Lisbon","count":1,"max":9}],"node":"a-1"}`,
			`"default","key":"\"käse\"\\\ufffd","n":1,"verdict":"allowed","door":"resp",` +
				`"limits":[],"node":"a-1"}`}
		for i, line := range got {
			if i < len(want) && line != when+want[i]+"\n" || !json.Valid([]byte(line)) {
				t.Errorf("got  %s\nwant %s", line, want[i])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d lines", len(got))
		}
	})
}

// TestShares records many decisions: a share of 1 chooses all, 0 none, and a half about half of
// them.
func TestShares(t *testing.T) {
	const times = 20_000
	shares := [twotier.VerdictCount]float64{twotier.Allowed: 0.5, twotier.Refused: 1}
	for v, share := range shares {
		all := make([]decisions.Decision, times)
		for i := range all {
			all[i].Verdict = twotier.Verdict(v)
		}
		// A deviation of 1000 is 14 standard deviations; without chance there is none.
		want, off := int(share*times), 0
		if share == 0.5 {
			off = 1000
		}
		if n := len(record(t, shares, all...)); n < want-off || n > want+off {
			t.Errorf("%d of %d with share %v", n, times, share)
		}
	}
}

// BenchmarkRecord records every decision, or almost none.
func BenchmarkRecord(b *testing.B) {
	d := &decisions.Decision{Door: "http", NS: []byte("sms"), Key: []byte("18829340001"), N: 1,
		Rule: &twotier.Rule{Name: "receiver"}, Version: 7, Limits: []twotier.LimitResult{
			{Window: 60_000, Count: 15, Max: 14}, {Window: 86_400_000, Count: 15, Max: 50}}}
	for name, share := range map[string]float64{"recorded": 1, "not chosen": 1e-18} {
		b.Run(name, func(b *testing.B) {
			l, err := decisionlog.New(decisionlog.Options{Writer: io.Discard, Node: "a",
				Shares: [twotier.VerdictCount]float64{share}})
			must.Succeed(b, err)
			b.ReportAllocs()
			for b.Loop() {
				l.Record(d)
			}
		})
	}
}

// open makes a log and opens it.
func open(t *testing.T, opt decisionlog.Options) *decisionlog.Log {
	t.Helper()
	l, err := decisionlog.New(opt)
	must.Succeed(t, err)
	l.Open()
	t.Cleanup(func() { _ = l.Close(t.Context()) })
	return l
}

// end closes a log, which may take some time.
func end(t *testing.T, l *decisionlog.Log) {
	t.Helper()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// until waits until a condition holds.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 60_000 {
		if is() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

// TestLinesAreWhole writes from many goroutines at once, into a file that already has a line.
func TestLinesAreWhole(t *testing.T) {
	const writers, each = 8, 500
	path := filepath.Join(t.TempDir(), "lines")
	must.Write(t, path, "old\n")
	l := open(t, decisionlog.Options{Path: path})
	var g sync.WaitGroup
	for w := range writers {
		g.Go(func() {
			for i := range each {
				l.Add(fmt.Appendf(nil, "%d/%d\n", w, i)...)
			}
		})
	}
	g.Wait()
	end(t, l)
	l.Add([]byte("too late\n")...)
	lines := strings.Split(must.Read(t, path), "\n")
	next := map[string]int{}
	for _, line := range lines[1 : len(lines)-1] {
		writer, number, _ := strings.Cut(line, "/")
		if number != fmt.Sprint(next[writer]) {
			t.Fatalf("%q, want number %d of that writer", line, next[writer])
		}
		next[writer]++
	}
	if len(lines) != 1+writers*each+1 || lines[0] != "old" || l.Sent() != writers*each ||
		l.Dropped() != 1 {
		t.Errorf("%d lines, the first is %q; %d written and %d dropped", len(lines), lines[0],
			l.Sent(), l.Dropped())
	}
}

// TestReopen renames the file as logrotate does: later lines go to a new file. If none can be
// created, they still go to the old one.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	path, old := filepath.Join(dir, "lines"), filepath.Join(dir, "lines.1")
	var log bytes.Buffer
	l := open(t, decisionlog.Options{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	add := func(line, to string) {
		t.Helper()
		l.Add([]byte(line + "\n")...)
		until(t, line+" in "+to, func() bool {
			text, err := os.ReadFile(to)
			return err == nil && strings.HasSuffix(string(text), line+"\n")
		})
	}
	add("one", path)
	must.Succeed(t, os.Rename(path, old))
	add("two", old)
	l.Reopen()
	add("three", path)
	must.Succeed(t, os.Rename(path, old))
	must.Succeed(t, os.Mkdir(path, 0o700))
	l.Reopen()
	add("four", old)
	end(t, l)
	if text := must.Read(t, old); text != "three\nfour\n" || l.Dropped() != 0 {
		t.Errorf("%q, %d dropped", text, l.Dropped())
	}
	if strings.Count(log.String(), "can't be opened again") != 1 {
		t.Errorf("the log:\n%s", log.String())
	}
}

// disk is a writer with room for a given number of bytes.
type disk struct {
	mu   sync.Mutex
	text []byte
	room int
}

var errFull = errors.New("no space left")

func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.room; n < len(b) {
		d.text, d.room = append(d.text, b[:n]...), 0
		return n, errFull
	}
	d.text, d.room = append(d.text, b...), d.room-len(b)
	return len(b), nil
}

func (d *disk) free(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room += n
}

// TestFullDiskIsLoggedOnce writes to a disk that fills up in the middle of a line, again and again,
// until there is room.
func TestFullDiskIsLoggedOnce(t *testing.T) {
	d := &disk{room: len("first\nsec")}
	var log bytes.Buffer
	l := open(t, decisionlog.Options{Writer: d, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	add := func(line string) {
		t.Helper()
		before := l.Sent() + l.Dropped()
		l.Add([]byte(line + "\n")...)
		until(t, line, func() bool { return l.Sent()+l.Dropped() > before })
	}
	for _, line := range []string{"first", "second", "third", "fourth"} {
		add(line)
	}
	if l.Sent() != 1 || l.Dropped() != 3 {
		t.Errorf("%d written and %d dropped", l.Sent(), l.Dropped())
	}
	d.free(100)
	add("fifth")
	end(t, l)
	if got := string(d.text); got != "first\nsec\nfifth\n" {
		t.Errorf("%q", got)
	}
	if text := log.String(); strings.Count(text, "can't be written") != 1 ||
		!strings.Contains(text, errFull.Error()) || strings.Count(text, "written again") != 1 {
		t.Errorf("the log:\n%s", text)
	}
}

// TestNobodyWaitsForASlowReader fills the queue of a pipe that nobody reads.
func TestNobodyWaitsForASlowReader(t *testing.T) {
	const queue, length = 4 << 20, 100_000
	r, w := io.Pipe()
	l := open(t, decisionlog.Options{Writer: w})
	line := append(bytes.Repeat([]byte{'x'}, length-1), '\n')
	l.Add(line...)
	until(t, "the writer waits for the reader", func() bool {
		for l.Dropped() == 0 { // also while the first line is still in the queue
			l.Add(line...)
		}
		return true
	})
	before := l.Dropped()
	for range 1000 {
		l.Add(line...)
	}
	if dropped := l.Dropped() - before; dropped < 1000-2*queue/length {
		t.Errorf("%d of 1000 were dropped", dropped)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the end without a reader: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	end(t, l)
}

// TestPathsThatCantBeUsed checks that unusable paths are errors at startup.
func TestPathsThatCantBeUsed(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "lines")} {
		_, err := decisionlog.New(decisionlog.Options{Path: path})
		if err == nil || !strings.HasPrefix(err.Error(), "--decisions: ") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestMetrics compares the names and values exported to Prometheus.
func TestMetrics(t *testing.T) {
	l := open(t, decisionlog.Options{Writer: io.Discard})
	l.Add([]byte("a\n")...)
	end(t, l)
	l.Add([]byte("b\n")...)
	l.Add([]byte("c\n")...)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(l)
	families, err := r.Gather()
	must.Succeed(t, err)
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	if got["twotier_decisions_written_total"] != 1 || got["twotier_decisions_dropped_total"] != 2 {
		t.Errorf("%v", got)
	}
}
