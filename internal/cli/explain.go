package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/refusallog"
)

func explainSpec() spec {
	return spec{
		name: "explain", args: "KEY|--id ID [--rule login] [flags]",
		summary: "show why a key is refused, and when it passes",
		details: "Shows the verdict of each rule of the key's namespace on one more event, its " +
			"limits with their counts, what used them up, bans and open holds, and the recent " +
			"refusals of the key. Limits of requests, which belong to no rule, are found in " +
			"recent refusals. --id asks about a refusal: every refusal has an id, which any " +
			"node looks up for an hour.",
		examples: "twotier explain alice\ntwotier explain alice --rule login --json\n" +
			"twotier explain --id \"$id\"",
		bind: func(fs *pflag.FlagSet) runner {
			ns := fs.String("ns", "", "`NAMESPACE` of the key")
			rule := fs.String("rule", "", "`NAME` of the only rule to explain")
			id := fs.String("id", "", "`ID` of a refusal, from an answer or its header "+
				"Twotier-Refusal")
			return func(ctx context.Context, s *session, args []string) error {
				query := queryOf("ns", *ns, "rule", *rule, "id", *id)
				if *id == "" || len(args) > 0 {
					key, err := OneKey(args)
					if err != nil {
						return err
					}
					query.Set("key", key)
				}
				if *id != "" && len(query) > 1 {
					return usagef("--id is enough: it has its key and its namespace")
				}
				return s.explain(ctx, query)
			}
		},
	}
}

// ofRequest stands for the name of a rule at limits that a request has itself.
const ofRequest = "(request)"

// explanation is the server's answer.
type explanation struct{ explain.Explanation }

// explainedLimit is a limit of a rule, with its name in the table.
type explainedLimit struct {
	name               string
	count, limit, left int64
}

func (s *session) explain(ctx context.Context, query url.Values) error {
	var a explanation
	if err := s.call(ctx, get("/v1/explain", query), &a); err != nil || s.json {
		return err
	}
	fmt.Fprintf(s.Stdout, "%s in namespace %s, rules version %d, decided by %s (%s)\n",
		quoteUnprintable(a.Key), a.NS, a.RulesVersion, cmp.Or(a.Owner, "Redis"),
		origin{a.Source, a.Degraded})
	if a.Refusal != nil {
		fmt.Fprintln(s.Stdout, a.describeRefusal(a.Refusal))
	}
	if a.Ban != nil {
		fmt.Fprintf(s.Stdout, "banned by %s for another %s\n", a.Ban.Rule, a.until(a.Ban.Until))
	}
	for _, h := range a.Holds {
		fmt.Fprintf(s.Stdout, "open: %s\n", countOf(int(h.Open), "hold"))
	}
	if a.Refusal == nil && len(a.Rules)+len(a.Refusals) == 0 {
		fmt.Fprintf(s.Stdout, "no rule in namespace %s judges it, and no recent refusal of it is "+
			"known there; --ns names another namespace\n", a.NS)
	}
	if err := a.limitTable().print(s.Stdout); err != nil {
		return err
	}
	if err := a.bucketTable().print(s.Stdout); err != nil {
		return err
	}
	return a.refusalTable().print(s.Stdout)
}

// until returns the time until a moment, as seen by the server.
func (a *explanation) until(moment int64) string {
	return twotier.FormatMillis(max(0, moment-a.At))
}

// since returns the time since a moment, as seen by the server.
func (a *explanation) since(moment int64) string {
	return twotier.FormatMillis(max(0, a.At-moment))
}

func (a *explanation) describeRefusal(r *refusallog.Refusal) string {
	text := fmt.Sprintf("refused %s ago by %s: %s", a.since(r.At), cmp.Or(r.Rule, ofRequest),
		causeOf(r))
	if r.Times > 1 {
		text += fmt.Sprintf(", %d times within a minute", r.Times)
	}
	return text + fmt.Sprintf(" (%s, node %s)", r.Door, r.Node)
}

// causeOf describes what refused.
func causeOf(r *refusallog.Refusal) string {
	switch {
	case r.Reason == "ban":
		return "ban"
	case r.Reason == "cold":
		return "its counts could not be read"
	case r.Reason == "concurrent":
		return fmt.Sprintf("%d of %d holds are open", r.Count, r.Limit)
	case r.Window == "":
		return r.Reason
	case r.Reason == "distinct":
		return fmt.Sprintf("%d of %d different values in %s", r.Count, r.Limit, r.Window)
	}
	text := fmt.Sprintf("%d of %d in %s", r.Count, r.Limit, r.Window)
	if r.N > 1 {
		text += fmt.Sprintf(", %d asked", r.N)
	}
	return text
}

// verdict describes the verdict of a rule on one more event.
func (a *explanation) verdict(r *explain.Rule) string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Unasked:
		return "would refuse, in shadow; no request asked for it in 24h"
	case r.WouldRefuse:
		return "would refuse, in shadow"
	case r.State != "on":
		return r.State
	case r.Passes:
		return "passes"
	case r.BannedUntil > 0:
		return "banned for another " + a.until(r.BannedUntil)
	case r.Never:
		return "refuses, always"
	case r.PassesAt > 0:
		return "refuses, passes in " + a.until(r.PassesAt)
	}
	return "refuses"
}

func explainedLimits(r *explain.Rule) (list []explainedLimit) {
	for i := range r.Windows {
		w := &r.Windows[i]
		list = append(list, explainedLimit{w.Window, w.Count, w.Limit, w.Remaining})
	}
	for _, v := range r.Distinct {
		list = append(list, explainedLimit{v.Window + " distinct", v.Count, v.Limit, v.Remaining})
	}
	if c := r.Concurrent; c != nil {
		list = append(list, explainedLimit{"concurrent", c.Count, c.Limit, c.Remaining})
	}
	return list
}

// verdictRow returns which of a rule's limits shows its verdict: the last one that is used up, as
// it takes the longest to pass, or else the first one.
func verdictRow(r *explain.Rule, list []explainedLimit) int {
	if !r.Passes || r.WouldRefuse {
		for i, l := range slices.Backward(list) {
			if l.left == 0 {
				return i
			}
		}
	}
	return 0
}

func (a *explanation) limitTable() *table {
	t := &table{left: 2, rows: [][]string{{"RULE", "WINDOW", "COUNT", "LIMIT", "LEFT", ""}}}
	for i := range a.Rules {
		r := &a.Rules[i]
		name, list := cmp.Or(r.Rule, ofRequest), explainedLimits(r)
		for j, l := range list {
			verdict := ""
			switch {
			case r.Error != "":
			case j == verdictRow(r, list):
				verdict = a.verdict(r)
			case l.left == 0 && !r.Passes:
				verdict = "refuses"
			}
			t.add(name, l.name, l.count, l.limit, l.left, verdict)
		}
		if r.Error != "" {
			t.add(name, "", "", "", "", r.Error)
		}
	}
	return t
}

// bucketTable returns the largest buckets of the windows of rules that refuse.
func (a *explanation) bucketTable() *table {
	t := &table{left: 2, rows: [][]string{{"LARGEST", "AT", "EVENTS"}}}
	seen := map[string]bool{}
	for _, r := range a.Rules {
		for _, w := range r.Windows {
			if w.Remaining > 0 || seen[w.Window] {
				continue
			}
			seen[w.Window] = true
			for _, b := range w.Buckets {
				t.add(twotier.FormatMillis(b.WidthMS)+" of "+w.Window, formatSecond(b.Start),
					b.Count)
			}
		}
	}
	return t
}

func (a *explanation) refusalTable() *table {
	t := &table{left: 4, rows: [][]string{{"REFUSAL", "AGO", "RULE", "CAUSE", "TIMES"}}}
	for i := range a.Refusals {
		r := &a.Refusals[i]
		t.add(r.ID, a.since(r.At), cmp.Or(r.Rule, ofRequest), causeOf(r), r.Times)
	}
	return t
}
