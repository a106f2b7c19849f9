package reload_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"twotier/internal/reload"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// taker keeps what was applied last; it can't use what is bad.
type taker struct{ text atomic.Value }

func (k *taker) apply(contents [][]byte) error {
	text := string(bytes.Join(contents, []byte("+")))
	if strings.Contains(text, "bad") {
		return errors.New("it is bad")
	}
	k.text.Store(text)
	return nil
}

func TestReload(t *testing.T) {
	var log bytes.Buffer
	var k taker
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	l := reload.New(slog.New(slog.NewTextHandler(&log, nil)))
	src := reload.Source{Name: "--thing", Paths: []string{a, b}, Apply: k.apply}
	if err := l.Add(src); err == nil || !strings.HasPrefix(err.Error(), "--thing: open ") {
		t.Errorf("without the file: %v", err)
	}
	write(t, a, "1")
	write(t, b, "bad")
	if err := l.Add(src); err == nil || err.Error() != "--thing: it is bad" {
		t.Errorf("with one of no use: %v", err)
	}
	write(t, b, "2")
	if err := l.Add(src); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		text, want string
		lines      int
	}{
		{"2", "1+2", 0}, {"3", "1+3", 1}, {"3", "1+3", 1}, {"bad", "1+3", 2}, {"bad", "1+3", 2}, {"bad too", "1+3", 2}, {"4", "1+4", 3}, {"bad", "1+4", 4},
	} {
		write(t, b, step.text)
		l.Reload()
		if got := k.text.Load(); got != step.want {
			t.Errorf("after %q: %q, want %q", step.text, got, step.want)
		}
		if n := strings.Count(log.String(), "\n"); n != step.lines {
			t.Errorf("after %q: %d lines in the log, want %d:\n%s", step.text, n, step.lines, log.String())
		}
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	if l.Reload(); k.text.Load() != "1+4" {
		t.Error("a file that is gone changed something")
	}
}

// TestLooksByItself also swaps a directory beneath a link, as Kubernetes does with what it mounts.
func TestLooksByItself(t *testing.T) {
	var k taker
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "file"), version)
	}
	data := filepath.Join(dir, "data")
	if err := os.Symlink("1", data); err != nil {
		t.Fatal(err)
	}
	l := reload.New(slog.New(slog.DiscardHandler))
	if err := l.Add(reload.Source{Paths: []string{filepath.Join(data, "file")}, Apply: k.apply}); err != nil {
		t.Fatal(err)
	}
	l.Open()
	defer l.Close()
	if err := os.Symlink("2", data+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(data+".new", data); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); k.text.Load() != "2"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the change was not noticed")
		}
	}
	l.Close()
}
