package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"twotier.dev/twotier"
)

// ErrRefused is returned by acquire and distinct if limits refused. The answer has been printed.
var ErrRefused = errors.New("refused")

// UsageError is a mistake on the command line.
type UsageError struct{ Err error }

// Error returns the mistake without the usage.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *UsageError) Unwrap() error { return e.Err }

// IO is a command's access to its process.
type IO struct {
	// Environ is NAME=value as in [os.Environ]; commands read the TWOTIER_* variables named in the
	// help, COLUMNS and TERM.
	Environ        []string
	Stdout, Stderr io.Writer
}

// getenv returns the value of a variable, or "".
func (o IO) getenv(name string) (found string) {
	for _, entry := range o.Environ {
		if n, v, _ := strings.Cut(entry, "="); n == name {
			found = v
		}
	}
	return found
}

// isTerminal reports whether an output goes to a terminal that is not dumb.
func (o IO) isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || o.getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// width returns the width of the output in characters.
func (o IO) width() int {
	n, err := strconv.Atoi(o.getenv("COLUMNS"))
	if err != nil {
		return 80
	}
	return min(max(n, 40), 240)
}

func usagef(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// OneKey returns the key, which must be the only argument.
func OneKey(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", usagef("the KEY is missing")
	case len(args) > 1:
		return "", usagef("one KEY is enough, and %q is one more (quote keys with spaces)", args[1])
	case args[0] == "":
		return "", usagef("the KEY is empty")
	}
	return args[0], nil
}

// RefuseArgs refuses non-flag arguments. It implements [cobra.PositionalArgs].
func RefuseArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// quoteUnprintable quotes a key with characters that a terminal might act on.
func quoteUnprintable(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}

// table holds rows of cells. The first left columns are aligned to the left; the others hold
// numbers and are aligned to the right.
type table struct {
	left int
	rows [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	t.rows = append(t.rows, row)
}

// print writes the table unless it has no rows below its head.
func (t *table) print(w io.Writer) error {
	if len(t.rows) < 2 {
		return nil
	}
	width := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, row := range t.rows {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i < t.left || i == len(row)-1 && cell != "" && (cell[0] < '0' || cell[0] > '9') {
				line += cell + pad + "  "
			} else {
				line += pad + cell + "  "
			}
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// formatSize formats a number of bytes for people, such as 1.5 MiB.
func formatSize(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size := float64(bytes)
	for size >= 1024 && len(units) > 1 {
		size /= 1024
		units = units[1:]
	}
	return strconv.FormatFloat(float64(int64(size*10))/10, 'f', -1, 64) + " " + units[0]
}

// formatSecond formats unix milliseconds as a time in whole seconds.
func formatSecond(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// windowCount is a count in the server's answer.
type windowCount struct {
	Window string `json:"window"`
	Count  int64  `json:"count"`
	Min    int64  `json:"min"`
	Max    int64  `json:"max"`
	Bucket int64  `json:"bucket_ms"`
}

// origin describes where an answer came from.
type origin struct {
	Source   string `json:"source"`
	Degraded bool   `json:"degraded"`
}

func (o origin) String() string {
	switch {
	case o.Source == "degraded":
		return "from memory alone: the store can't be reached"
	case o.Degraded:
		return o.Source + ", degraded"
	}
	return o.Source
}

// printCounts prints counts and, if there are any, the limits they are compared with.
func (s *session) printCounts(counts []windowCount, rules []limit) error {
	t := table{left: 1, rows: [][]string{{"WINDOW", "COUNT", "MIN", "MAX"}}}
	if len(rules) > 0 {
		t.rows[0] = append(t.rows[0], "LIMIT", "")
	}
	for i, c := range counts {
		if i >= len(rules) {
			t.add(c.Window, c.Count, c.Min, c.Max)
			continue
		}
		mark := ""
		if c.Max > rules[i].Max { // like the server, compare the upper bound
			mark = "over"
		}
		t.add(c.Window, c.Count, c.Min, c.Max, rules[i].Max, mark)
	}
	return t.print(s.Stdout)
}

// queryOf returns a query of names and values in turn, without the values that are empty.
func queryOf(pairs ...string) url.Values {
	query := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			query.Set(pair[0], pair[1])
		}
	}
	return query
}

func keyQuery(ns, key, window string) url.Values {
	return queryOf("ns", ns, "key", key, "window", strings.ReplaceAll(window, " ", ""))
}

// describeRefusal describes a refusal: that a retry can succeed after that many milliseconds or, if
// that is negative, the reason why it never can.
func describeRefusal(after int64, never string) string {
	if after < 0 {
		return "refused, and always will be: " + never
	}
	wait := time.Duration(after) * time.Millisecond
	return "refused, try again in " + twotier.FormatDuration(wait)
}

// describeMarks describes a limit: its rule, if it has one, whether it is in shadow, and whether it
// refused.
func describeMarks(rule string, shadow, refused bool) string {
	var marks []string
	if rule != "" {
		marks = append(marks, rule)
	}
	if shadow {
		marks = append(marks, "in shadow")
	}
	if refused {
		marks = append(marks, "refused")
	}
	return strings.Join(marks, ", ")
}
