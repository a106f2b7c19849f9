package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"sort"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/imports"
	"twotier.dev/twotier/internal/retry"
)

// importServer is the server of an import. Its requests may be repeated: an operation that has
// counted is refused the next time.
type importServer struct {
	client *caller
	ack    string
	// patience is how long a server that does not answer, or is overloaded, is asked again.
	patience time.Duration
}

// The bounds of a batch. Its body is a tenth shorter than a server accepts.
const (
	importOps   = 2000
	importBytes = 900 << 10
)

type importOp struct {
	Op     string  `json:"op"`
	Checks []check `json:"checks"`
	TS     int64   `json:"ts"`
	Ack    string  `json:"ack,omitempty"`
	DryRun bool    `json:"dry_run,omitempty"`
}

type importResult struct {
	Allowed bool
	Checks  []decision
	Error   *Problem
	origin
}

func markCheck(m *imports.Mark, n, most, span int64) check {
	ns, key := twotier.ImportedKey(m.NS, m.Source, m.Key)
	return check{NS: ns, Key: key, N: &n,
		Limits: []limit{{Window: twotier.FormatMillis(span), Max: most}}}
}

// Span implements [imports.Server]. A count of a window that exceeds the span is refused.
func (s *importServer) Span(ctx context.Context, ns string) (span int64, err error) {
	const most = int(20 * 366 * 24 * time.Hour / time.Millisecond)
	ask := func(ms int) error {
		window := twotier.FormatMillis(int64(ms))
		_, err := s.client.do(ctx, get("/v1/count", keyQuery(ns, "span", window)))
		return err
	}
	n := sort.Search(most-1, func(i int) bool {
		if err != nil {
			return true
		}
		refused := ask(i + 1)
		p, ok := errors.AsType[*Problem](refused)
		if ok && p.Status == http.StatusUnprocessableEntity {
			return true
		}
		err = refused
		return err != nil
	})
	if err == nil && n == 0 {
		err = ask(1) // its error has the reason
	}
	return int64(n), err
}

// errMarksUnknown is the error of an import that can't see what earlier ones have counted.
var errMarksUnknown = errors.New("the server can't read its counts in Redis, so it may not know " +
	"what earlier imports have counted; repeat this one once /readyz is not degraded")

// Marked implements [imports.Server], with dry runs that are refused.
func (s *importServer) Marked(ctx context.Context, span int64, probes []imports.Probe) ([]int64,
	error) {
	marked := make([]int64, 0, len(probes))
	ops := func(yield func(importOp) bool) {
		for i := range probes {
			p := &probes[i]
			if !yield(importOp{Op: "acquire", TS: p.TS, DryRun: true,
				Checks: []check{markCheck(&p.Mark, 1, 0, span)}}) {
				return
			}
		}
	}
	err := s.eachBatch(ctx, ops, func(results []importResult) error {
		for _, r := range results {
			switch {
			case r.Error != nil:
				return r.Error
			case r.Degraded || r.Source == "fallback":
				return errMarksUnknown
			case len(r.Checks) != 1 || len(r.Checks[0].Limits) != 1:
				return errors.New("the server answers with other limits than asked for")
			}
			marked = append(marked, r.Checks[0].Limits[0].Count)
		}
		return nil
	})
	if err == nil && len(marked) != len(probes) {
		err = errOtherNumber
	}
	return marked, err
}

// Series implements [imports.Server].
func (s *importServer) Series(ctx context.Context, m imports.Mark, window int64) (
	list []imports.Bucket, err error) {
	ns, key := twotier.ImportedKey(m.NS, m.Source, m.Key)
	var answer struct {
		Bucket int64 `json:"bucket_ms"`
		Points [][2]int64
	}
	query := keyQuery(ns, key, twotier.FormatMillis(window))
	err = s.ask(ctx, get("/v1/series", query), &answer)
	for _, p := range answer.Points {
		list = append(list, imports.Bucket{Start: p[0], Width: answer.Bucket, N: p[1]})
	}
	return list, err
}

// Count implements [imports.Server].
func (s *importServer) Count(ctx context.Context, span int64, ops iter.Seq[imports.Op],
	counted func(*imports.Op)) (all bool, why, err error) {
	var sent []imports.Op // those without a result yet
	acquires := func(yield func(importOp) bool) {
		for o := range ops {
			sent = append(sent, o)
			if !yield(importOp{Op: "acquire", TS: o.TS, Ack: s.ack, Checks: []check{
				{NS: o.NS, Key: o.Key, N: &o.N, Limits: []limit{{Window: "1ms",
					Max: twotier.MaxBound}}},
				markCheck(&o.Mark, o.N, o.Max, span)}}) {
				return
			}
		}
	}
	all = true
	err = s.eachBatch(ctx, acquires, func(results []importResult) error {
		if len(results) > len(sent) {
			return errOtherNumber
		}
		for i, r := range results {
			if r.Allowed {
				counted(&sent[i])
				continue
			}
			all = false
			if why == nil && r.Error != nil {
				why = r.Error
			}
		}
		sent = sent[len(results):]
		return nil
	})
	if err == nil && len(sent) > 0 {
		err = errOtherNumber
	}
	return all, why, err
}

// errOtherNumber is the error of an answer that belongs to another batch.
var errOtherNumber = errors.New("the server has answered another number of operations than asked " +
	"for")

// eachBatch sends as many operations at a time as fit into a batch, and calls got with the results.
func (s *importServer) eachBatch(ctx context.Context, ops iter.Seq[importOp],
	got func(results []importResult) error) error {
	var list []json.RawMessage
	size := 0
	send := func() error {
		var answer struct{ Results []importResult }
		q := post("/v1/batch", map[string]any{"ops": list})
		if err := s.ask(ctx, q, &answer); err != nil {
			return err
		}
		list, size = list[:0], 0
		return got(answer.Results)
	}
	for o := range ops {
		one, err := json.Marshal(o)
		if err != nil {
			return err
		}
		if len(list) == importOps || len(list) > 0 && size+len(one) > importBytes {
			if err := send(); err != nil {
				return err
			}
		}
		list, size = append(list, one), size+len(one)+len(",")
	}
	if len(list) == 0 {
		return nil
	}
	return send()
}

// ask calls the server until it answers, and decodes its answer.
func (s *importServer) ask(ctx context.Context, q question, answer any) error {
	end := time.Now().Add(s.patience)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		text, err := s.client.do(ctx, q)
		switch {
		case err == nil:
			return json.Unmarshal(text, answer)
		case time.Now().After(end):
			return err
		}
		p, answered := errors.AsType[*Problem](err)
		final := answered && p.Status != http.StatusTooManyRequests &&
			p.Status < http.StatusInternalServerError
		if final || !retry.Pause(ctx, wait) {
			return err
		}
	}
}

func (s *session) printImport(r *imports.Report, f *importFlags, warnings []string) error {
	if !s.json {
		_, err := io.WriteString(s.Stdout, describeImport(r, f, warnings))
		return err
	}
	return json.NewEncoder(s.Stdout).Encode(struct {
		DryRun bool `json:"dry_run"`
		*imports.Report
		Warnings []string `json:"warnings,omitempty"`
	}{f.dryRun, r, warnings})
}

func describeImport(r *imports.Report, f *importFlags, warnings []string) string {
	var b strings.Builder
	did := "counted"
	if f.dryRun {
		did = "would count"
	}
	fmt.Fprintf(&b, "%s %s of %s", did, countOf(int(r.Counted), "event"),
		countOf(int(r.Keys), "key"))
	if r.Keys == 0 {
		fmt.Fprintf(&b, ": no key matches %s", f.pattern)
	}
	b.WriteByte('\n')
	if f.dryRun && r.First != nil {
		fmt.Fprintf(&b, "for example %s -> %s in %s: %s\n", quoteUnprintable(r.First.From),
			quoteUnprintable(r.First.Key), f.namespace(), countOf(int(r.First.Events), "event"))
	}
	if r.Oldest > 0 {
		fmt.Fprintf(&b, "times %s to %s\n", formatMoment(r.Oldest), formatMoment(r.Newest))
	}
	describeLeftOut(&b, r)
	for _, w := range warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	if f.dryRun {
		b.WriteString("nothing was written\n")
	}
	return b.String()
}

// describeLeftOut describes the events that an import has left out or lost.
func describeLeftOut(b *strings.Builder, r *imports.Report) {
	for _, left := range []struct {
		n   int64
		why string
	}{
		{r.Repeated, "counted by an earlier import"},
		{r.Meanwhile, "counted meanwhile by another import, or before an answer got lost"},
		{r.TooOld, "older than the namespace reaches back, " + twotier.FormatMillis(r.SpanMS)},
		{r.Later, "after --until"},
		{r.Ahead, "ahead of the server's clock: repeat the import to add them"},
	} {
		if left.n > 0 {
			fmt.Fprintf(b, "left out %s %s\n", countOf(int(left.n), "event"), left.why)
		}
	}
	if r.Unreadable > 0 {
		fmt.Fprintf(b, "left out %s that are no events, such as in %s\n",
			countOf(int(r.Unreadable), "element"), r.Example)
	}
	for _, format := range imports.Formats() {
		if loss := imports.Format(format).Loss(); r.Formats[imports.Format(format)] > 0 &&
			loss != "" {
			fmt.Fprintf(b, "lost: %s\n", loss)
		}
	}
	for _, k := range r.Failed {
		fmt.Fprintf(b, "not imported: %q: %s\n", k.Key, k.Error)
	}
	if more := r.FailedKeys - int64(len(r.Failed)); more > 0 {
		fmt.Fprintf(b, "not imported: %s more\n", countOf(int(more), "key"))
	}
}

func formatMoment(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// progressBar shows on a terminal how far an import is. A nil bar shows nothing.
type progressBar struct {
	to   io.Writer
	next time.Time
}

// barCells is the width of a progress bar in characters, barPause the time between two pictures.
const (
	barCells = 30
	barPause = 100 * time.Millisecond
)

// show draws the bar: Redis has looked at seen of size keys.
func (b *progressBar) show(r *imports.Report, seen, size int64) {
	if now := time.Now(); now.After(b.next) {
		b.next = now.Add(barPause)
		fmt.Fprint(b.to, "\r", drawBar(r, seen, size), "\x1b[K")
	}
}

func drawBar(r *imports.Report, seen, size int64) string {
	done := int64(barCells)
	if size > 0 {
		done = min(done, seen*barCells/size)
	}
	return fmt.Sprintf("%s%s %3d%%  %s, %s", strings.Repeat("█", int(done)),
		strings.Repeat("░", barCells-int(done)), done*100/barCells, countOf(int(r.Keys), "key"),
		countOf(int(r.Events), "event"))
}

func (b *progressBar) clear() {
	if b != nil {
		fmt.Fprint(b.to, "\r\x1b[K")
	}
}
