package cli

import (
	"context"
	"fmt"
	"net/http"
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

// backtested is the answer to a backtest.
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
	var answer backtested
	if err := s.call(ctx, http.MethodPost, backtestPath, nil, body, &answer); err != nil || s.json {
		return err
	}
	fmt.Fprintln(s.Stdout, answer.describeExtent())
	if err := answer.ruleTable().print(s.Stdout); err != nil {
		return err
	}
	if t := answer.keyTable(); len(t.rows) > 1 {
		fmt.Fprintln(s.Stdout)
		return t.print(s.Stdout)
	}
	return nil
}

// describeExtent describes how many keys were read, and which are missing.
func (b *backtested) describeExtent() string {
	var out strings.Builder
	keys := "keys"
	if b.LookedAt == 1 {
		keys = "key"
	}
	fmt.Fprintf(&out, "looked at %d %s", b.LookedAt, keys)
	for i, ns := range b.Namespaces {
		fmt.Fprintf(&out, "%s %d of %s", [...]string{":", ","}[min(i, 1)], ns.LookedAt, ns.NS)
	}
	if b.Unread > 0 {
		fmt.Fprintf(&out, "; %d more could not be read", b.Unread)
	}
	if len(b.Silent) > 0 {
		fmt.Fprintf(&out, "; no answer from %s", strings.Join(b.Silent, ", "))
	}
	if names := b.distinctRules(); len(names) > 0 {
		fmt.Fprintf(&out, "\ndistinct limits are not replayed: %s", strings.Join(names, ", "))
	}
	if b.LookedAt > 0 {
		out.WriteString("\nrefused requests are not among the events, except with count_denied")
	}
	return out.String()
}

// distinctRules returns the names of rules with limits on distinct values.
func (b *backtested) distinctRules() (names []string) {
	for i := range b.Rules {
		if b.Rules[i].Distinct {
			names = append(names, b.Rules[i].Rule)
		}
	}
	return names
}

// ruleTable returns a table with a row for each rule.
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

// addKey adds a row for each limit that the rule has for a key.
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
