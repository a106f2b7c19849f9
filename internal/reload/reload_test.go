package reload_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"twotier.dev/twotier/internal/reload"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/warning"
)

// taker keeps the contents applied last. It refuses bad ones.
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
	var problems []warning.Warning
	l := reload.New(slog.New(slog.NewTextHandler(&log, nil)),
		func(list []warning.Warning) { problems = list })
	src := reload.Source{Name: "--thing", Paths: []string{a, b}, Apply: k.apply}
	if err := l.Add(src); err == nil || !strings.HasPrefix(err.Error(), "--thing: open ") {
		t.Errorf("without the file: %v", err)
	}
	must.Write(t, a, "1")
	must.Write(t, b, "bad")
	if err := l.Add(src); err == nil || err.Error() != "--thing: it is bad" {
		t.Errorf("with one of no use: %v", err)
	}
	must.Write(t, b, "2")
	must.Succeed(t, l.Add(src))
	for _, step := range []struct {
		text, want string
		lines      int
	}{
		{"2", "1+2", 0}, {"3", "1+3", 1}, {"3", "1+3", 1}, {"bad", "1+3", 2}, {"bad", "1+3", 2},
		{"bad too", "1+3", 2}, {"4", "1+4", 3}, {"bad", "1+4", 4},
	} {
		must.Write(t, b, step.text)
		l.Poll()
		l.Poll()
		if got := k.text.Load(); got != step.want {
			t.Errorf("after %q: %q, want %q", step.text, got, step.want)
		}
		if n := strings.Count(log.String(), "\n"); n != step.lines {
			t.Errorf("after %q: %d lines in the log, want %d:\n%s", step.text, n, step.lines,
				log.String())
		}
		bad := strings.HasPrefix(step.text, "bad")
		if (len(problems) > 0) != bad || bad && (problems[0].At != "--thing" ||
			!strings.HasPrefix(problems[0].Reason, "it is bad;")) {
			t.Errorf("after %q: reported %v", step.text, problems)
		}
	}
	must.Succeed(t, os.Remove(a))
	if l.Reload(); k.text.Load() != "1+4" {
		t.Error("a file that is gone changed something")
	}
}

// loader returns a loader for a single file, and its log.
func loader(t *testing.T, k *taker,
	text string) (l *reload.Loader, file string, log *bytes.Buffer) {
	t.Helper()
	log, file = new(bytes.Buffer), filepath.Join(t.TempDir(), "file")
	must.Write(t, file, text)
	l = reload.New(slog.New(slog.NewTextHandler(log, nil)), nil)
	must.Succeed(t, l.Add(reload.Source{Name: "--thing", Paths: []string{file},
		Apply: k.apply}))
	return l, file, log
}

// TestTroubleIsOverAndComesAgain checks that each time a file becomes unusable, and each time it is
// usable again, is logged.
func TestTroubleIsOverAndComesAgain(t *testing.T) {
	var k taker
	l, file, log := loader(t, &k, "1")
	for i := range 3 {
		must.Succeed(t, os.Remove(file))
		l.Poll()
		l.Poll()
		must.Write(t, file, "1")
		l.Poll()
		l.Poll()
		gone, back := strings.Count(log.String(), "no such file"),
			strings.Count(log.String(), "can be used again")
		if gone != i+1 || back != i+1 {
			t.Fatalf("gone %d times, and said so %d times, and %d times that it is back:\n%s", i+1,
				gone, back, log)
		}
	}
}

// TestReloadSaysAgainWhatIsWrong checks that Reload logs a problem even if it was logged before, so
// that silence means success.
func TestReloadSaysAgainWhatIsWrong(t *testing.T) {
	var k taker
	l, file, log := loader(t, &k, "1")
	must.Write(t, file, "bad")
	for i := range 3 {
		l.Poll()
		l.Reload()
		if n := strings.Count(log.String(), "it is bad"); n != i+1 {
			t.Fatalf("asked %d times, told %d times:\n%s", i+1, n, log)
		}
	}
	must.Write(t, file, "2")
	if l.Reload(); k.text.Load() != "2" {
		t.Errorf("%q is in force although somebody asked for what is there", k.text.Load())
	}
}

// TestPipeInPlaceOfAFile checks that a pipe in place of a file blocks nothing.
func TestPipeInPlaceOfAFile(t *testing.T) {
	var k taker
	l, file, log := loader(t, &k, "1")
	must.Succeed(t, os.Remove(file))
	must.Succeed(t, syscall.Mkfifo(file, 0o600))
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Poll()
		l.Reload()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for somebody to write to the pipe")
	}
	if k.text.Load() != "1" ||
		!strings.Contains(log.String(), "is not a regular file, so it is read only") {
		t.Errorf("%q is in force\n%s", k.text.Load(), log)
	}
}

// TestHalfOfAFileIsNotTaken polls while a file is written in place: only the whole file is applied.
func TestHalfOfAFileIsNotTaken(t *testing.T) {
	var k taker
	l, file, log := loader(t, &k, "a b c")
	for _, part := range []string{"", "d", "d e", "d e f"} {
		must.Write(t, file, part)
		if l.Poll(); k.text.Load() != "a b c" {
			t.Errorf("%q was taken while the file was written", k.text.Load())
		}
	}
	if l.Poll(); k.text.Load() != "d e f" || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%q is in force\n%s", k.text.Load(), log)
	}
}

// TestLooksByItself checks that an open loader notices changes, including a directory swapped
// behind a symbolic link, as Kubernetes does with mounts.
func TestLooksByItself(t *testing.T) {
	var k taker
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		must.Succeed(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		must.Write(t, filepath.Join(dir, version, "file"), version)
	}
	data := filepath.Join(dir, "data")
	must.Succeed(t, os.Symlink("1", data))
	l := reload.New(slog.New(slog.DiscardHandler), nil)
	must.Succeed(t, l.Add(reload.Source{Paths: []string{filepath.Join(data, "file")},
		Apply: k.apply}))
	l.Open()
	defer l.Close()
	must.Succeed(t, os.Symlink("2", data+".new"))
	must.Succeed(t, os.Rename(data+".new", data))
	for end := time.Now().Add(20 * time.Second); k.text.Load() != "2"; time.Sleep(
		10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the change was not noticed")
		}
	}
	l.Close()
}

// TestRemovedFileIsWithdrawn removes a file whose absence counts as an empty file.
func TestRemovedFileIsWithdrawn(t *testing.T) {
	var k taker
	file := must.File(t, "file", "a")
	l := reload.New(slog.New(slog.DiscardHandler), nil)
	src := reload.Source{Name: "--thing", Paths: []string{file}, Withdrawn: true, Apply: k.apply}
	must.Succeed(t, l.Add(src))
	must.Succeed(t, os.Remove(file))
	if l.Poll(); k.text.Load() != "a" {
		t.Error("withdrawn while the file may be replaced")
	}
	if l.Poll(); k.text.Load() != "" {
		t.Errorf("%q is in force without the file", k.text.Load())
	}
}
