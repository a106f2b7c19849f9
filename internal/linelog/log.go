package linelog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"twotier.dev/twotier/internal/metrics"
)

const (
	// defaultQueue is the default of [Options].Queue.
	defaultQueue = 4 << 20
	// gather is how long the writer waits for more lines before it writes, to avoid a system call
	// for each.
	gather = 50 * time.Millisecond
	// quiet is the least time between two log messages about failing writes.
	quiet = time.Minute
)

// Options configure a [Log].
type Options struct {
	// Name is the name of the flag that asks for the lines, such as "decisions". It is part of the
	// names of the metrics, and names the lines in logs and errors.
	Name string
	// Path is the file to append to. It is created if it does not exist.
	Path string
	// Writer receives the lines instead of a file if Path is empty.
	Writer io.Writer
	// Queue bounds the bytes that wait to be written; 0 means 4 MiB.
	Queue int
	// Logger receives a message when writing fails, and one when it works again; nil means silence.
	Logger *slog.Logger
}

// Log queues and writes lines. Make one with [New].
type Log struct {
	metrics.Unchecked

	opt  Options
	wake chan struct{} // holds one: there is something to do
	stop chan struct{} // closed by Close
	done chan struct{} // closed when the writer has ended

	written, dropped atomic.Int64

	mu      sync.Mutex
	queue   []byte // whole lines
	lines   int64  // that are in it
	reopen  bool
	started bool
	closed  bool

	// The fields below belong to the writer.
	out     io.Writer
	torn    bool      // the last write ended inside a line
	failing bool      // the last write failed, and that has been logged
	logged  time.Time // when the log said so last
}

// New opens the file, so that an unusable path is an error at startup.
func New(opt Options) (*Log, error) {
	opt.Queue = cmp.Or(opt.Queue, defaultQueue)
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{opt: opt, out: opt.Writer, wake: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{})}
	if opt.Path == "" {
		return l, nil
	}
	f, err := openFile(opt.Path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", opt.Name, err)
	}
	l.out = f
	return l, nil
}

// openFile opens a file to append to. A named pipe without a reader is an error, rather than a
// server that waits for one.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640)
}

// Open starts to write.
func (l *Log) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.started && !l.closed {
		l.started = true
		go l.runWriter()
	}
}

// Add queues a line, without its end, or drops it. It keeps nothing of line.
func (l *Log) Add(line []byte) {
	l.mu.Lock()
	fits := !l.closed && len(l.queue)+len(line)+1 <= l.opt.Queue
	if fits {
		l.queue = append(append(l.queue, line...), '\n')
		l.lines++
	}
	l.mu.Unlock()
	if !fits {
		l.dropped.Add(1)
		return
	}
	l.wakeWriter()
}

// wakeWriter wakes the writer, unless a wake-up is already pending.
func (l *Log) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Reopen makes the writer open the file again by its name. Until that succeeds, lines go to the
// file already open.
func (l *Log) Reopen() {
	l.mu.Lock()
	l.reopen = l.opt.Path != ""
	l.mu.Unlock()
	l.wakeWriter()
}

// Close writes the queued lines and closes the file. If that takes longer than ctx allows, the
// error reports how many lines are lost at least. It may be called twice.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.stop)
		if !l.started {
			go l.runWriter()
		}
	}
	l.mu.Unlock()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		// A blocked write can't be interrupted if it goes to a terminal or to a pipe of another
		// process.
		l.mu.Lock()
		defer l.mu.Unlock()
		return fmt.Errorf("--%s: at least %d lines are not written: %w", l.opt.Name, l.lines,
			ctx.Err())
	}
}

// Written returns the number of written lines.
func (l *Log) Written() int64 { return l.written.Load() }

// Dropped returns the number of lines that were dropped.
func (l *Log) Dropped() int64 { return l.dropped.Load() }

// runWriter writes until Close.
func (l *Log) runWriter() {
	defer close(l.done)
	var spare []byte
	for open := true; open; {
		select {
		case <-l.wake:
			l.awaitMore()
		case <-l.stop:
			open = false
		}
		spare = l.writeQueue(spare)
	}
	if f, ok := l.out.(*os.File); ok && l.opt.Path != "" {
		if err := f.Close(); err != nil {
			l.opt.Logger.Warn("a file could not be closed", "what", "--"+l.opt.Name, "error", err)
		}
	}
}

// awaitMore waits for more lines, but no longer once Close was called.
func (l *Log) awaitMore() {
	t := time.NewTimer(gather)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.stop:
	}
}

// writeQueue writes the queued lines. New lines are queued in the memory of spare; the memory of
// the written ones is returned.
func (l *Log) writeQueue(spare []byte) []byte {
	l.mu.Lock()
	text, lines, reopen := l.queue, l.lines, l.reopen
	l.queue, l.lines, l.reopen = spare[:0], 0, false
	l.mu.Unlock()
	if reopen {
		l.reopenFile()
	}
	if lines > 0 {
		l.write(text, lines)
	}
	return text
}

// reopenFile opens the file by its name, or keeps the one already open if that fails.
func (l *Log) reopenFile() {
	f, err := openFile(l.opt.Path)
	if err != nil {
		l.opt.Logger.Warn("a file can't be opened again: going on with the one that was open",
			"what", "--"+l.opt.Name, "error", err)
		return
	}
	if old, ok := l.out.(*os.File); ok {
		_ = old.Close() // its lines were written; a late disk error can't be repaired here
	}
	l.out, l.torn = f, false
}

// write writes lines and drops the ones that fail.
func (l *Log) write(text []byte, lines int64) {
	if l.torn {
		if _, err := l.out.Write([]byte{'\n'}); err != nil {
			l.drop(lines, err)
			return
		}
		l.torn = false
	}
	n, err := l.out.Write(text)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	whole := lines
	if err != nil {
		whole = int64(bytes.Count(text[:n], []byte{'\n'}))
		l.torn = n > 0 && text[n-1] != '\n'
	}
	l.written.Add(whole)
	if err != nil {
		l.drop(lines-whole, err)
	} else if l.failing {
		l.failing = false
		l.opt.Logger.Info("lines are written again", "what", "--"+l.opt.Name, "dropped",
			l.Dropped())
	}
}

// drop counts lines that could not be written, and logs the reason unless it has been logged.
func (l *Log) drop(lines int64, err error) {
	l.dropped.Add(lines)
	// A disk that is almost full fails every other write.
	if !l.failing && (l.logged.IsZero() || time.Since(l.logged) >= quiet) {
		l.failing, l.logged = true, time.Now()
		l.opt.Logger.Warn("lines can't be written: they are dropped and counted until they can be",
			"what", "--"+l.opt.Name, "error", err)
	}
}
