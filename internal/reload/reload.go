package reload

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/warning"
)

const (
	// every is how often files are read. A change is applied after two reads that agree.
	every = 500 * time.Millisecond
	// maxFile bounds a file, so that a wrong path causes an error rather than exhausting memory.
	maxFile = 4 << 20
)

// Source is a set of files that belong together, and the function that applies their contents.
type Source struct {
	// Name is the name of the source in errors and in the log, such as the flag that names its
	// files.
	Name  string
	Paths []string
	// Withdrawn makes a removed file count as an empty one, so that its grants end with it.
	Withdrawn bool
	// Apply puts the contents, in the order of Paths, into use. If they are unusable, it returns an
	// error and changes nothing.
	Apply func(contents [][]byte) error
}

// Loader reloads sources. Make one with [New].
type Loader struct {
	log    *slog.Logger
	report func([]warning.Warning)

	mu      sync.Mutex
	sources []*source

	stop context.CancelFunc
	done sync.WaitGroup
}

type source struct {
	Source
	seen    [][]byte // the contents that Apply was last called with
	refused error    // the result of that call: nil if the contents are in use
	next    [][]byte // other contents that the last poll read: they may be half written
	trouble string   // the problem that was last logged, "" if the files can be used
}

// New returns a loader without sources. It logs changes and problems to log, and calls report with
// the warnings about all present problems when they change. report may be nil.
func New(log *slog.Logger, report func([]warning.Warning)) *Loader {
	if report == nil {
		report = func([]warning.Warning) {}
	}
	return &Loader{log: log, report: report}
}

// Add reads a source and applies it. If that fails, the source is not added.
func (l *Loader) Add(src Source) error {
	s := &source{Source: src}
	if _, err := s.read(true); err != nil {
		return fmt.Errorf("%s: %w", src.Name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sources = append(l.sources, s)
	return nil
}

// Open starts to look for changes, until Close.
func (l *Loader) Open() {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.done.Go(func() { l.runPoll(ctx) })
}

// Close stops looking for changes. It may be called twice, and without Open.
func (l *Loader) Close() {
	if l.stop != nil {
		l.stop()
	}
	l.done.Wait()
}

func (l *Loader) runPoll(ctx context.Context) {
	for retry.Pause(ctx, every) {
		l.poll()
	}
}

// Reload reads all sources now and applies the changed ones. It logs every problem, even if it was
// logged before.
func (l *Loader) Reload() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		s.trouble = ""
		l.take(s, true)
	}
}

// poll polls all sources. Unlike Reload it can't assume that the files are complete.
func (l *Loader) poll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		l.take(s, false)
	}
}

// take reads a source and logs the outcome.
func (l *Loader) take(s *source, complete bool) {
	changed, err := s.read(complete)
	switch {
	case err != nil && err.Error() != s.trouble:
		s.trouble = err.Error()
		l.log.Warn("a file can't be used as it is now: keeping the previous content", "warning",
			warning.FileUnusable, "what", s.Name, "error", err)
	case err == nil && changed:
		s.trouble = ""
		l.log.Info("read again", "what", s.Name)
	case err == nil && s.trouble != "":
		s.trouble = ""
		l.log.Info("a file can be used again", "what", s.Name)
	default:
		return
	}
	list := []warning.Warning{}
	for _, s := range l.sources {
		if s.trouble != "" {
			list = append(list, warning.Warning{Code: warning.FileUnusable, At: s.Name,
				Reason: s.trouble + "; the previous content stays in use, and a restart would " +
					"fail", Instead: "correct the file, which is read again when it changes"})
		}
	}
	l.report(list)
}

// read reads the files and applies them if they differ from the contents applied last: immediately
// if they are known to be complete, otherwise once two reads in a row agree. The first part of a
// file that is being written may be valid and grant more than the whole file does.
func (s *source) read(complete bool) (changed bool, err error) {
	contents := make([][]byte, len(s.Paths))
	for i, path := range s.Paths {
		contents[i], err = readFile(path, s.seen != nil)
		if s.Withdrawn && s.seen != nil && errors.Is(err, os.ErrNotExist) {
			contents[i], err = nil, nil
		}
		if err != nil {
			s.next = nil
			return false, err
		}
	}
	before := s.next
	s.next = nil
	switch {
	case equal(contents, s.seen):
		return false, s.refused
	case !complete && !equal(contents, before):
		s.next = contents
		return false, s.refused
	}
	s.seen, s.refused = contents, s.Apply(contents)
	return true, s.refused
}

func equal(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

// readFile reads a file. Anything but a regular file, such as a pipe, can only be read the first
// time: later there may be no writer, and reading would block forever.
func readFile(path string, again bool) ([]byte, error) {
	flags := os.O_RDONLY
	if again {
		flags |= syscall.O_NONBLOCK
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || again && !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fmt.Errorf("%s is not a regular file, so it is read "+
			"only at startup", path))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxFile)
	}
	return text, err
}
