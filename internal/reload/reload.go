package reload

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// every is how often files are looked at: what has changed is in force after two looks.
	every = 500 * time.Millisecond
	// maxFile bounds a file, so that a wrong path is an error rather than a machine out of memory.
	maxFile = 4 << 20
)

// Source is files that belong together, and who takes what is in them.
type Source struct {
	// Name is what errors and the log call it, such as the flag that named the files.
	Name  string
	Paths []string
	// Apply puts the contents, in the order of the paths, in force, or returns why they can't be
	// used and changes nothing.
	Apply func(contents [][]byte) error
}

// Loader reads sources. Make one with [New].
type Loader struct {
	log *slog.Logger

	mu      sync.Mutex
	sources []*source

	stop context.CancelFunc
	done sync.WaitGroup
}

type source struct {
	Source
	seen    [][]byte // what Apply was given last
	refused error    // why that is of no use, nil if it is in force
	next    [][]byte // what was read instead when it was looked at last: it may be half written
	trouble string   // what was logged since all was well
}

// New returns a loader that has nothing to read yet. log is told of changes.
func New(log *slog.Logger) *Loader { return &Loader{log: log} }

// Add reads a source and applies it. If that fails it is not added.
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

// Open begins to look for changes, until Close.
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
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.look()
		}
	}
}

// Reload reads all sources now and applies those that have changed. It says again what can't be
// used.
func (l *Loader) Reload() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		s.trouble = ""
		l.take(s, true)
	}
}

// look is Reload for what nobody has said is complete.
func (l *Loader) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		l.take(s, false)
	}
}

// take reads a source and logs what became of it.
func (l *Loader) take(s *source, complete bool) {
	changed, err := s.read(complete)
	switch {
	case err != nil && err.Error() != s.trouble:
		s.trouble = err.Error()
		l.log.Warn("a file can't be used as it is now: keeping the previous content", "what",
			s.Name, "error", err)
	case err == nil && changed:
		s.trouble = ""
		l.log.Info("read again", "what", s.Name)
	case err == nil && s.trouble != "":
		s.trouble = ""
		l.log.Info("a file can be used again", "what", s.Name)
	}
}

// read reads the files and applies them if they differ from what was applied last: at once if they
// are known to be complete, else if they were the same when they were looked at before. Of a file
// that is being written the first part may make sense, and grant what the whole does not.
func (s *source) read(complete bool) (changed bool, err error) {
	contents := make([][]byte, len(s.Paths))
	for i, path := range s.Paths {
		if contents[i], err = readFile(path, s.seen != nil); err != nil {
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

// readFile reads a file. What is none, such as a pipe, can be read the first time only: later
// nobody may write to it, which would be waited for without end.
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
		return nil, cmp.Or(err, fmt.Errorf("%s is no regular file: it is read at start only", path))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxFile)
	}
	return text, err
}
