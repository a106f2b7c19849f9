package mirror

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"twotier.dev/twotier"
)

// Summary returns the report in one line.
func (r *Report) Summary() string {
	rest := fmt.Sprintf("; waiting %d, dropped %d, errors %d, invalid %d", r.Waiting, r.Dropped,
		r.Errors, r.Invalid)
	switch {
	case r.Compared > 0:
		return fmt.Sprintf("%d compared, %s agree; twotier stricter %d, looser %d%s", r.Compared,
			percent(r.Agreement), r.Stricter, r.Looser, rest)
	case r.UnknownCalls > 0:
		return "0 compared; " + r.unknownCalls() + rest
	}
	return "0 compared" + rest
}

// unknownCalls describes the calls that no mapping names.
func (r *Report) unknownCalls() string {
	return fmt.Sprintf("%d EVALSHA of a script not in --mapping: %s (add sha:)", r.UnknownCalls,
		r.LastUnknown)
}

// goodModel is the share of verdicts from which on a model resembles the old limiter.
const goodModel = 0.9

// percent rounds down, so that only complete agreement is 100%.
func percent(share float64) string {
	return strconv.FormatFloat(float64(int64(share*100_000))/1000, 'f', -1, 64) + "%"
}

// String returns the report for people.
func (r *Report) String() string {
	var b strings.Builder
	b.WriteString(r.Summary() + "\n")
	if r.LastError != "" {
		fmt.Fprintf(&b, "last error: %s\n", r.LastError)
	}
	if r.LastInvalid != "" {
		fmt.Fprintf(&b, "last invalid request: %s\n", r.LastInvalid)
	}
	if r.Compared > 0 && r.UnknownCalls > 0 {
		fmt.Fprintf(&b, "%s\n", r.unknownCalls())
	}
	for _, s := range r.Strips {
		fmt.Fprintf(&b, "strip: no key of %d calls begins with %q, such as %s\n", s.Calls, s.Strip,
			printable(s.Example))
	}
	if len(r.Keys) == 0 {
		return b.String()
	}
	b.WriteString("\nwhy they differ\n")
	for _, reason := range r.Reasons {
		fmt.Fprintf(&b, "  %d  %s: %s\n", reason.Differences, reason.Reason, reason.Text)
	}
	if len(r.Models) > 0 && r.Models[0].Share > r.Agreement && r.Models[0].Share >= goodModel {
		fmt.Fprintf(&b, "  the old limiter is best predicted by a model %s (%s)\n",
			r.Models[0].Model.model(), percent(r.Models[0].Share))
	}
	b.WriteString("\nkeys that differ most\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  KEY\tSTRICTER\tLOOSER\tREASON\tLAST\n")
	for i := range r.Keys {
		k := &r.Keys[i]
		name := k.Key
		if k.Namespace != "" {
			name = k.Namespace + ":" + name
		}
		fmt.Fprintf(t, "  %s\t%d\t%d\t%s\t%s\n", printable(name), k.Stricter, k.Looser, k.Reason,
			&k.Last)
	}
	_ = t.Flush() // a strings.Builder does not fail
	if r.KeysLeftOut > 0 {
		fmt.Fprintf(&b, "  and %d more\n", r.KeysLeftOut)
	}
	return b.String()
}

// String returns the difference for people.
func (m *Moment) String() string {
	var limits []string
	for _, l := range m.Limits {
		text := fmt.Sprintf("%d of %d in %s", l.Count, l.Max, l.Window)
		if l.Rule != "" {
			text = l.Rule + " " + text
		}
		limits = append(limits, text)
	}
	text := fmt.Sprintf("%s old %s, twotier %s: %s",
		time.UnixMilli(m.TS).UTC().Format("15:04:05.000"), m.Old, m.Twotier,
		strings.Join(limits, ", "))
	if m.RetryAfterMS > 0 {
		text += ", room in " + twotier.FormatMillis(m.RetryAfterMS)
	}
	return text
}

// printable quotes a key with characters that a terminal might act on.
func printable(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}
