package cli

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier"
)

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
func (s *session) describeRefusal(after int64, never string) string {
	if after < 0 {
		return s.paint(red, "refused") + ", and always will be: " + never
	}
	wait := time.Duration(after) * time.Millisecond
	return s.paint(red, "refused") + ", try again in " + twotier.FormatDuration(wait)
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
