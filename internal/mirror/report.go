package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
)

// Report is the result of a comparison. Times are unix milliseconds.
type Report struct {
	Since int64 `json:"since"`
	Until int64 `json:"until"`
	// Compared is the number of verdicts that twotier has answered too: it agreed, or was Stricter
	// (refused what the old limiter allowed) or Looser. Agreement is the share that agreed, and 1
	// before the first one, which the text leaves out.
	Compared  uint64  `json:"compared"`
	Agreed    uint64  `json:"agreed"`
	Agreement float64 `json:"agreement"`
	Stricter  uint64  `json:"stricter"`
	Looser    uint64  `json:"looser"`
	// Waiting verdicts are not compared yet. Dropped ones never will be, because too many waited,
	// nor will verdicts that twotier has answered with Errors, or Invalid requests.
	Waiting     int    `json:"waiting"`
	Dropped     uint64 `json:"dropped"`
	Errors      uint64 `json:"errors"`
	LastError   string `json:"last_error,omitempty"`
	Invalid     uint64 `json:"invalid"`
	LastInvalid string `json:"last_invalid,omitempty"`
	// UnknownCalls are EVALSHA of scripts that no mapping names and whose text has not passed, and
	// LastUnknown is the SHA-1 of the last one.
	UnknownCalls uint64 `json:"unknown_calls"`
	LastUnknown  string `json:"last_unknown,omitempty"`
	// Strips are the prefixes of mappings that no key begins with.
	Strips []StripReport `json:"strips,omitempty"`
	// Reasons are the reasons of all differences, the most frequent first.
	Reasons []ReasonCount `json:"reasons"`
	// Models are the shares of verdicts that each kind of limiter predicts, the largest first.
	Models []ModelShare `json:"models"`
	// Keys are the keys with the most differences, and KeysLeftOut the number of others.
	Keys        []KeyReport `json:"keys"`
	KeysLeftOut uint64      `json:"keys_left_out"`
}

// ReasonCount is the number of differences with a reason.
type ReasonCount struct {
	Reason      Reason `json:"reason"`
	Differences uint64 `json:"differences"`
	Text        string `json:"text"`
}

// ModelShare is how often a kind of limiter, or twotier's own, decides like the old one.
type ModelShare struct {
	Model Reason  `json:"model"`
	Share float64 `json:"share"`
}

// StripReport is a prefix that no key of its calls begins with.
type StripReport struct {
	Strip string `json:"strip"`
	Calls uint64 `json:"calls"`
	// Example is the first key.
	Example string `json:"example"`
}

// KeyReport is a key about which the two differ.
type KeyReport struct {
	Namespace string `json:"ns,omitempty"`
	Key       string `json:"key"`
	Stricter  uint64 `json:"stricter"`
	Looser    uint64 `json:"looser"`
	// Reason is the most frequent one of its differences.
	Reason Reason `json:"reason"`
	Last   Moment `json:"last"`
}

// Moment is one difference.
type Moment struct {
	TS int64 `json:"ts"`
	// Old and Twotier are "allowed" or "refused".
	Old     string `json:"old"`
	Twotier string `json:"twotier"`
	N       int64  `json:"n"`
	// Limits are twotier's counts in that moment, with these events if the old limiter has counted
	// them or twotier allowed them.
	Limits []MomentLimit `json:"limits"`
	// RetryAfterMS is when twotier would have allowed them.
	RetryAfterMS int64 `json:"retry_after_ms"`
}

// MomentLimit is the state of a limit in a moment.
type MomentLimit struct {
	Rule    string `json:"rule,omitempty"`
	Window  string `json:"window"`
	Max     int64  `json:"max"`
	Count   int64  `json:"count"`
	Refused bool   `json:"refused,omitempty"`
}

// mostKeys is the number of keys in a report.
const mostKeys = 20

// difference describes the differences of one key.
type difference struct {
	KeyReport

	causes map[cause]uint64
}

func (d *difference) total() uint64 { return d.Stricter + d.Looser }

// recordDifference records a difference under the key that refused, or else the first one.
func (b *book) recordDifference(o *observation, why cause) {
	c := o.decisive()
	name := nameOf(c.Check)
	d := b.differ[name]
	if d == nil {
		b.makeRoom()
		d = &difference{causes: map[cause]uint64{}}
		d.Namespace, d.Key = strings.Clone(c.Namespace), strings.Clone(c.Key)
		b.differ[d.Namespace+"\x00"+d.Key] = d
	}
	if o.old {
		d.Stricter++
	} else {
		d.Looser++
	}
	if _, ok := d.causes[why]; ok || len(d.causes) < maxRanges {
		d.causes[why]++
	}
	d.Last = Moment{TS: o.ts, Old: twotier.VerdictOf(!o.old, false).String(),
		Twotier: twotier.VerdictOf(!o.twotier, false).String(), N: c.N, RetryAfterMS: o.retry}
	for i := range c.limits {
		d.Last.Limits = append(d.Last.Limits, momentLimit(&c.limits[i]))
	}
}

// decisive returns the check that refused, or the first one.
func (o *observation) decisive() *check {
	for i := range o.checks {
		if slices.ContainsFunc(o.checks[i].limits, func(l client.LimitState) bool {
			return l.Refused
		}) {
			return &o.checks[i]
		}
	}
	return &o.checks[0]
}

func momentLimit(l *client.LimitState) MomentLimit {
	m := MomentLimit{Rule: l.Rule, Window: l.Period, Max: l.Max, Count: l.Count,
		Refused: l.Refused}
	switch {
	case l.Concurrent:
		m.Window = "open"
	case l.Period == "":
		m.Window = twotier.FormatDuration(l.Window)
	}
	return m
}

// makeRoom leaves out the key with the fewest differences if there are too many keys.
func (b *book) makeRoom() {
	if len(b.differ) < maxDiffering {
		return
	}
	least := ""
	for name, d := range b.differ {
		if least == "" || d.total() < b.differ[least].total() {
			least = name
		}
	}
	delete(b.differ, least)
	b.counted.KeysLeftOut++
}

// report returns the comparison so far.
func (b *book) report(now int64) *Report {
	r := b.counted
	r.Until, r.Agreement, r.Keys = now, 1, []KeyReport{}
	if r.Compared > 0 {
		r.Agreement = float64(r.Agreed) / float64(r.Compared)
	}
	r.Strips, r.Reasons, r.Models = b.unmatchedStrips(), b.count(b.causes), b.models()
	for _, d := range b.differ {
		d.Reason = b.count(d.causes)[0].Reason
		r.Keys = append(r.Keys, d.KeyReport)
	}
	slices.SortFunc(r.Keys, func(x, y KeyReport) int {
		return cmp.Or(cmp.Compare(y.Stricter+y.Looser, x.Stricter+x.Looser),
			cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Key, y.Key))
	})
	if len(r.Keys) > mostKeys {
		r.KeysLeftOut += uint64(len(r.Keys) - mostKeys)
		r.Keys = r.Keys[:mostKeys]
	}
	return &r
}

// count returns the best reasons of differences, the most frequent first.
func (b *book) count(causes map[cause]uint64) []ReasonCount {
	found := map[ReasonCount]uint64{}
	for c, n := range causes {
		found[b.best(c)] += n
	}
	list := []ReasonCount{}
	for r, n := range found {
		r.Differences = n
		list = append(list, r)
	}
	slices.SortFunc(list, func(x, y ReasonCount) int {
		return cmp.Or(cmp.Compare(y.Differences, x.Differences), cmp.Compare(x.Reason, y.Reason),
			cmp.Compare(x.Text, y.Text))
	})
	return list
}

// best returns the reason of a cause that has fitted most verdicts.
func (b *book) best(c cause) ReasonCount {
	best, most := isUnexplained, uint64(0)
	for i := range reasonCount {
		fits := b.fits[i]
		if !c.reasons.has(i) || i == isOtherLimit && !b.ranges[c.limit].explains(c.limit.max) {
			continue
		}
		if best == isUnexplained || fits > most {
			best, most = i, fits
		}
	}
	r := ReasonCount{Reason: reasons[best].name, Text: reasons[best].text}
	if best == isOtherLimit {
		r.Text = b.otherLimit(c.limit)
	}
	return r
}

// otherLimit describes the old limiter's number for a limit.
func (b *book) otherLimit(l limitName) string {
	s := b.ranges[l]
	number := fmt.Sprint(s.allowed)
	if s.refused-1 > s.allowed {
		number += fmt.Sprintf(" to %d", s.refused-1)
	}
	return fmt.Sprintf("%s: %s in %s, and not %d", reasons[isOtherLimit].text, number,
		twotier.FormatMillis(l.window), l.max)
}

// models returns the shares of verdicts that kinds of limiters predict.
func (b *book) models() []ModelShare {
	list := []ModelShare{}
	if b.judged == 0 {
		return list
	}
	for i := isFixedWindow; i <= isCountsRefused; i++ {
		list = append(list, ModelShare{reasons[i].name, float64(b.fits[i]) / float64(b.judged)})
	}
	slices.SortStableFunc(list, func(x, y ModelShare) int { return cmp.Compare(y.Share, x.Share) })
	return list
}

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
