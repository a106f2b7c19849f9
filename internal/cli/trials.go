package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/internal/backtest"
)

// backtestPath is the path for trying rules.
const backtestPath = "/v1/backtest"

// backtestTimeout bounds the wait for a backtest, which reads many keys.
const backtestTimeout = 15 * time.Second

// backtestTop is how many keys of each list are read, the maximum that a server accepts.
const backtestTop = 1000

// maxShown is how many keys of each rule are shown.
const maxShown = 20

// bounds are the minimum and maximum of a number.
type bounds backtest.Bounds

func (b bounds) String() string {
	if b.Min == b.Max {
		return strconv.FormatInt(b.Min, 10)
	}
	return fmt.Sprintf("%d-%d", b.Min, b.Max)
}

type backtested struct{ backtest.Report }

// backtestRules asks for the effect of a file of rules, of named rules in force, or of all rules in
// force.
func (s *session) backtestRules(ctx context.Context, f ruleFlags, path string) error {
	body := map[string]any{"top": f.top}
	switch {
	case f.top < 1:
		return usagef("--top: %d is not a number of keys", f.top)
	case f.names != "" && path != "":
		return usagef("want either a FILE or --rule, not both")
	case f.names != "":
		body["rules"] = strings.Split(f.names, ",")
	case path != "":
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		body["rules"] = string(text)
	default:
		inForce, _, err := s.readRules(ctx, 0, "application/yaml")
		if err != nil {
			return err
		}
		body["rules"] = string(inForce.body)
	}
	s.client.unknown = "a backtest changes nothing"
	return ask(ctx, s, post(backtestPath, body), func(answer *backtested) error {
		fmt.Fprintln(s.Stdout, answer.describeExtent())
		if err := answer.ruleTable().print(s.Stdout); err != nil {
			return err
		}
		t := answer.keyTable()
		if len(t.rows) > 1 {
			fmt.Fprintln(s.Stdout)
		}
		return t.print(s.Stdout)
	})
}

// describeExtent describes how many keys were read, and which are missing.
func (b *backtested) describeExtent() string {
	var out strings.Builder
	fmt.Fprintf(&out, "looked at %s", countOf(b.LookedAt, "key"))
	for i, ns := range b.Namespaces {
		fmt.Fprintf(&out, "%s %d of %s", [...]string{":", ","}[min(i, 1)], ns.LookedAt, ns.NS)
	}
	if b.Unread > 0 {
		fmt.Fprintf(&out, "; %d more could not be read", b.Unread)
	}
	if len(b.Silent) > 0 {
		fmt.Fprintf(&out, "; no answer from %s", strings.Join(b.Silent, ", "))
	}
	lead := "\ndistinct limits are not replayed: "
	for i := range b.Rules {
		if b.Rules[i].Distinct {
			out.WriteString(lead + b.Rules[i].Rule)
			lead = ", "
		}
	}
	if b.LookedAt > 0 {
		out.WriteString("\nrefused requests are not among the events, except with count_denied")
	}
	return out.String()
}

func (b *backtested) ruleTable() *table {
	t := &table{left: 2}
	t.add("RULE", "STATE", "KEYS", "REFUSING", "EVENTS", "REFUSED")
	for i := range b.Rules {
		r := &b.Rules[i]
		t.add(r.Rule, r.State, r.LookedAt, r.Refusing, r.Events, bounds(r.Refused))
	}
	return t
}

// keyTable returns a table with a row for each limit of each shown key.
func (b *backtested) keyTable() *table {
	t := &table{left: 3}
	t.add("RULE", "KEY", "LIMIT", "COUNT", "PEAK", "EVENTS", "REFUSED", "")
	for i := range b.Rules {
		r := &b.Rules[i]
		for j := range min(len(r.Keys), maxShown) {
			t.addKey(r.Rule, &r.Keys[j])
		}
		if more := len(r.Keys) - maxShown + r.LeftOut; more > 0 {
			t.add(r.Rule, fmt.Sprintf("(%d more)", more), "", "", "", "", "", "")
		}
	}
	return t
}

func (t *table) addKey(rule string, k *backtest.KeyReport) {
	for i := range k.Limits {
		l, mark := &k.Limits[i], ""
		if l.Refuses {
			mark = "refuses now"
		}
		t.add(rule, quoteUnprintable(k.Key), fmt.Sprintf("%d/%s", l.Max, l.Window),
			bounds(l.Now.Bounds), bounds(l.Peak), k.Events, bounds(l.Refused), mark)
	}
}

// The defaults of a suggestion.
const (
	suggestWindows    = "1m,24h"
	suggestPercentile = 99.9
	suggestName       = "suggested"
)

// suggested is the answer to a request for limits.
type suggested struct{ backtest.Suggestions }

// suggestRules asks for limits that the keys of a namespace, or of rules in force, have not
// reached.
func (s *session) suggestRules(ctx context.Context, f ruleFlags, _ string) error {
	body := map[string]any{"suggest": map[string]float64{"percentile": f.percentile}}
	switch {
	case !(f.percentile > 0 && f.percentile <= 100):
		return usagef("--percentile: %v is not a number above 0, and at most 100", f.percentile)
	case f.names != "" && (f.ns != "" || f.windows != ""):
		return usagef("--rule has its namespace and windows; want it without --ns and --windows")
	case f.names != "":
		body["rules"] = strings.Split(f.names, ",")
	default:
		var limits []string
		for window := range strings.SplitSeq(cmp.Or(f.windows, suggestWindows), ",") {
			limits = append(limits, "1/"+strings.TrimSpace(window))
		}
		rule := map[string]any{"name": suggestName, "limits": limits}
		if f.ns != "" {
			rule["namespace"] = f.ns
		}
		body["rules"] = map[string]any{"rules": []any{rule}}
	}
	s.client.unknown = "a suggestion changes nothing"
	return ask(ctx, s, post(backtestPath, body), func(answer *suggested) error {
		var out strings.Builder
		for i := range answer.Rules {
			answer.print(&out, &answer.Rules[i], f.names != "")
		}
		return s.printf("%s", out.String())
	})
}

// print writes the limits of a rule, which may be in force, as YAML, below comments with the
// figures.
func (a *suggested) print(out *strings.Builder, r *backtest.Suggestion, inForce bool) {
	var text strings.Builder
	fmt.Fprintln(&text, a.describeExtent(r))
	if len(r.Limits) == 0 {
		fmt.Fprintf(&text, "There is no history to suggest limits from. Requests that name rules "+
			"in state off or shadow\ncount without being refused, and so does twotier add. "+
			"Other namespaces: --ns. The busiest keys\nof all namespaces: twotier top --window "+
			"24h\n")
	} else {
		a.describeLimits(&text, r)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text.String(), "\n"), "\n") {
		out.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	if len(r.Limits) > 0 {
		out.WriteString(snippet(r, inForce))
	}
}

// describeExtent describes how many keys were read, and which are missing.
func (a *suggested) describeExtent(r *backtest.Suggestion) string {
	text := countOf(int(r.Keys), "key")
	if r.Keys == 0 {
		text = "no key"
	}
	text += " of " + r.NS + " in memory had events in the last 24 hours"
	switch {
	case r.Keys == 0:
	case r.Skewed:
		text = fmt.Sprintf("%s of recent requests to %s examined: in Redis mode, nodes only "+
			"remember those,\nand busy keys are more likely among them", countOf(r.Examined, "key"),
			r.NS)
	case int64(r.Examined) == r.Keys:
		text += ": all were examined"
	case r.Busiest > 0:
		text += fmt.Sprintf(": a uniform sample of %d was examined,\nand %s of the busiest ones, "+
			"for MAX and REFUSED", r.Examined, countOf(r.Busiest, "more"))
	default:
		text += fmt.Sprintf(": %d were examined", r.Examined)
	}
	if a.Unread > 0 {
		text += fmt.Sprintf("; %d could not be read", a.Unread)
	}
	if len(a.Silent) > 0 {
		text += "; no answer from " + strings.Join(a.Silent, ", ")
	}
	if !r.Skewed {
		text += "\nkeys without a request since the nodes started are not included"
	}
	return text
}

// describeLimits writes a table of the peaks and the limits, and how they were found.
func (a *suggested) describeLimits(out *strings.Builder, r *backtest.Suggestion) {
	fmt.Fprintln(out, "the busiest window of each key:")
	t := &table{left: 1}
	head := []any{"WINDOW"}
	for _, p := range r.Limits[0].Peaks {
		if p.Percentile == 100 {
			head = append(head, "MAX")
		} else {
			head = append(head, "P"+decimal(p.Percentile))
		}
	}
	t.add(append(head, "LIMIT", "REFUSED")...)
	for i := range r.Limits {
		l := &r.Limits[i]
		row := []any{l.Window}
		for _, p := range l.Peaks {
			row = append(row, bounds(p.Bounds))
		}
		t.add(append(row, l.Max, bounds(l.Refused))...)
	}
	_ = t.print(out) // a Builder does not fail
	fmt.Fprintf(out, "LIMIT is one above P%s, rounded up to two digits: at least %s%% of the keys "+
		"never reached it.\n", decimal(a.Percentile), decimal(a.Percentile))
	fmt.Fprintf(out, "These limits would have refused %v of %s, of %v of the keys.\n",
		bounds(r.Refused), countOf(int(r.Events), "event"), bounds(r.Refusing))
	fmt.Fprintln(out, "3-5 is at least 3 and at most 5: the buckets of older events don't have "+
		"their times; LIMIT is\nabove the 5.")
}

func decimal(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }

// snippet returns the limits as YAML: a document, or the field of a rule that is in force.
func snippet(r *backtest.Suggestion, inForce bool) string {
	var limits []string
	for i := range r.Limits {
		limit := fmt.Sprintf("%d/%s", r.Limits[i].Max, r.Limits[i].Window)
		if strings.ContainsAny(limit, "@,{}[]# ") {
			quoted, _ := json.Marshal(limit) // a string can be encoded
			limit = string(quoted)
		}
		limits = append(limits, limit)
	}
	list := strings.Join(limits, ", ")
	if inForce {
		return fmt.Sprintf("limits: [%s] # of the rule %s\n", list, r.Rule)
	}
	name := r.Rule
	if r.NS != "default" {
		name += ", namespace: " + r.NS
	}
	return fmt.Sprintf("rules:\n  - {name: %s, limits: [%s], state: shadow}\n", name, list)
}
