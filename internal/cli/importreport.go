package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/imports"
)

// printImport prints the report of an import.
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

// describeImport describes an import for people.
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

// describeLeftOut describes what an import has left out, and what it lacks.
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

// newProgressBar returns a bar if stderr is a terminal, or nil.
func (s *session) newProgressBar() *progressBar {
	if !s.isTerminal(s.Stderr) {
		return nil
	}
	return &progressBar{to: s.Stderr}
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

// drawBar returns the picture of a bar.
func drawBar(r *imports.Report, seen, size int64) string {
	done := int64(barCells)
	if size > 0 {
		done = min(done, seen*barCells/size)
	}
	return fmt.Sprintf("%s%s %3d%%  %s, %s", strings.Repeat("█", int(done)),
		strings.Repeat("░", barCells-int(done)), done*100/barCells, countOf(int(r.Keys), "key"),
		countOf(int(r.Events), "event"))
}

// clear removes the bar.
func (b *progressBar) clear() {
	if b != nil {
		fmt.Fprint(b.to, "\r\x1b[K")
	}
}
