package decisionlog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/metrics"
	"twotier.dev/twotier/internal/outbox"
)

// stamp is RFC 3339 in UTC with milliseconds.
const stamp = "2006-01-02T15:04:05.000Z"

// appendLine appends a decision as a JSON object and the end of the line.
func appendLine(b []byte, d *decisions.Decision, node string, now time.Time) []byte {
	b = append(b, `{"time":"`...)
	b = now.UTC().AppendFormat(b, stamp)
	b = appendText(append(b, `","ns":`...), cmp.Or(string(d.NS), twotier.DefaultNamespace))
	if name := d.RuleName(); name != "" {
		b = appendText(append(b, `,"rule":`...), name)
	}
	b = appendText(append(b, `,"key":`...), string(d.Key))
	b = strconv.AppendInt(append(b, `,"n":`...), d.N, 10)
	if d.Distinct {
		b = append(b, `,"distinct":true`...)
	}
	b = append(append(b, `,"verdict":"`...), d.Verdict.String()...)
	b = append(append(b, `","door":"`...), d.Door...)
	b = append(b, `","limits":[`...)
	for i := range d.Limits {
		l := &d.Limits[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"window":"`...), twotier.FormatWindow(l.Window, l.Period)...)
		b = strconv.AppendInt(append(b, `","count":`...), l.Count, 10)
		b = strconv.AppendInt(append(b, `,"max":`...), l.Max, 10)
		b = append(b, '}')
	}
	b = appendText(append(b, `],"node":`...), node)
	if d.Version != 0 {
		b = strconv.AppendInt(append(b, `,"rules_version":`...), d.Version, 10)
	}
	if d.Trace != nil && d.Trace.TraceContext() != nil {
		b = appendText(append(b, `,"trace_id":`...), d.Trace.TraceContext().TraceID())
	}
	return append(b, "}\n"...)
}

// appendText appends a JSON string.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(text) // a string always marshals
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

const (
	// maxQueue bounds the bytes that wait to be written.
	maxQueue = 4 << 20
	// gather is how long the writer waits for more lines before it writes, to avoid a system call
	// for each.
	gather = 50 * time.Millisecond
)

// about names the log in messages.
const about = "--decisions"

// Options configure a [Log].
type Options struct {
	// Path is the file to append to. It is created if it does not exist.
	Path string
	// Writer receives the lines instead of a file if Path is empty.
	Writer io.Writer
	// Node is the name of this node, and Shares the sampling rate by verdict, from 0 to 1.
	Node   string
	Shares [twotier.VerdictCount]float64
	// Logger receives a message when writing fails, and one when it works again; nil means silence.
	Logger *slog.Logger
}

// Log queues and writes decisions. Make one with [New].
type Log struct {
	*outbox.Queue[byte]
	opt  Options
	next atomic.Pointer[os.File] // the file that Reopen has opened
	pool sync.Pool               // of *[]byte, the memory of lines

	// The fields below belong to the sender of the queue.
	out  io.Writer
	torn bool // the last write ended inside a line
}

// New opens the file, so that an unusable path is an error at startup.
func New(opt Options) (*Log, error) {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{opt: opt, out: opt.Writer}
	l.Queue = outbox.New(outbox.Options[byte]{Send: l.write, Count: countLines, Gather: gather,
		Most: maxQueue, MayHang: true, Logger: opt.Logger,
		Failed: "lines can't be written: they are dropped and counted until they can be",
		Works:  "lines are written again", About: []any{"what", about}})
	if opt.Path == "" {
		return l, nil
	}
	f, err := openFile(opt.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", about, err)
	}
	l.out = f
	return l, nil
}

// Receives implements [decisions.Sink].
func (l *Log) Receives(v twotier.Verdict) bool { return l.opt.Shares[v] > 0 }

// Record writes a line, if it chooses the decision.
func (l *Log) Record(d *decisions.Decision) {
	// All 64 bits of the random number make the smallest shares possible.
	share := l.opt.Shares[d.Verdict]
	if share < 1 && rand.Uint64() >= uint64(share*math.MaxUint64) {
		return
	}
	b, ok := l.pool.Get().(*[]byte)
	if !ok {
		b = new([]byte)
	}
	*b = appendLine((*b)[:0], d, l.opt.Node, time.Now())
	l.Add(*b...)
	l.pool.Put(b)
}

// countLines returns the number of lines that end in a text.
func countLines(text []byte) int { return bytes.Count(text, []byte{'\n'}) }

// openFile opens a file to append to. A named pipe without a reader is an error, rather than a
// server that waits for one.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o640)
}

// Reopen opens the file again by its name: lines that are written from now on go there. If that
// fails, they go to the file already open.
func (l *Log) Reopen() {
	if l.opt.Path == "" {
		return
	}
	f, err := openFile(l.opt.Path)
	if err != nil {
		l.opt.Logger.Warn("a file can't be opened again: going on with the one that was open",
			"what", about, "error", err)
		return
	}
	if unused := l.next.Swap(f); unused != nil {
		_ = unused.Close() // it has no lines
	}
}

// Close writes the queued lines and closes the file. If that takes longer than ctx allows, the
// error reports how many lines are lost. It may be called twice.
func (l *Log) Close(ctx context.Context) error {
	lost := l.Queue.Close(ctx)
	if err := ctx.Err(); err != nil && lost > 0 {
		// A blocked write can't be interrupted if it goes to a terminal or to a pipe of another
		// process.
		return fmt.Errorf("%s: at least %d lines are not written: %w", about, lost, err)
	}
	if f, ok := l.out.(*os.File); ok && l.opt.Path != "" {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			l.opt.Logger.Warn("a file could not be closed", "what", about, "error", err)
		}
	}
	return nil
}

// write writes lines, and returns the length of the part that is written.
func (l *Log) write(_ context.Context, text []byte) (n int, err error) {
	if f := l.next.Swap(nil); f != nil {
		if old, ok := l.out.(*os.File); ok {
			_ = old.Close() // its lines were written; a late disk error can't be repaired here
		}
		l.out, l.torn = f, false
	}
	if l.torn {
		if _, err := l.out.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		l.torn = false
	}
	if n, err = l.out.Write(text); err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	l.torn = n > 0 && text[n-1] != '\n'
	return n, err
}

// Collect implements [prometheus.Collector].
func (l *Log) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	to.Total("twotier_decisions_written_total", "Lines that were written to --decisions.", l.Sent())
	to.Total("twotier_decisions_dropped_total", "Lines that were not written, because what is to "+
		"take them is too slow or fails, to --decisions.", l.Dropped())
}
