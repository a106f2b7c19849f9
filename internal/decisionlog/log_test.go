package decisionlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/decisionlog"
)

// open makes a log and opens it.
func open(t *testing.T, opt decisionlog.Options) *decisionlog.Log {
	t.Helper()
	l, err := decisionlog.New(opt)
	if err != nil {
		t.Fatal(err)
	}
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

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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
	if err := os.WriteFile(path, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
	lines := strings.Split(read(t, path), "\n")
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
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	add("two", old)
	l.Reopen()
	add("three", path)
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	l.Reopen()
	add("four", old)
	end(t, l)
	if text := read(t, old); text != "three\nfour\n" || l.Dropped() != 0 {
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
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	if got["twotier_decisions_written_total"] != 1 || got["twotier_decisions_dropped_total"] != 2 {
		t.Errorf("%v", got)
	}
}
