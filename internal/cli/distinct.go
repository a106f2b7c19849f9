package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

func distinctSpec() spec {
	return spec{
		name: "distinct", args: "KEY [VALUE...] [--window 1h,24h] [flags]",
		summary: "add values to a key, and count different ones",
		details: "Adds the VALUES, unless a --limit or a --rule forbids it, and counts how many " +
			"different ones the key has had in each window. With neither, the default rules of " +
			"the namespace judge. Without a VALUE it only counts. ERROR is the relative standard " +
			"error of a count, exact if there is none. It is safe to repeat. The exit status is " +
			"3 if a limit refused the values.",
		examples: "twotier distinct alice device-7\n" +
			"twotier distinct alice device-7 device-8 --limit 5/24h\n" +
			"twotier distinct alice device-7 --rule devices\n" +
			"twotier distinct alice --window 37m",
		bind: func(fs *pflag.FlagSet) runner {
			var body distinctBody
			fs.StringVar(&body.NS, "ns", "", "`NAMESPACE` of the key")
			fs.StringVar(&body.Window, "window", "1h,24h",
				"`WINDOWS` to count, with commas between them")
			fs.StringVar(&body.Ack, "ack", "",
				"wait until the values are in `WHAT`: memory, redis, replica or disk")
			limitsVar(fs, &body.Limits,
				"`MAX/WINDOW` of different values, such as 5/24h; may be repeated")
			rulesVar(fs, &body.Rules, "`NAME` of a rule of the server; may be repeated")
			return func(ctx context.Context, s *session, args []string) error {
				return s.distinct(ctx, &body, args)
			}
		},
	}
}

// distinctBody is the body of a request that adds values, which flags fill.
type distinctBody struct {
	NS     string   `json:"ns,omitempty"`
	Key    string   `json:"key"`
	Values []string `json:"values"`
	Window string   `json:"window"`
	Ack    string   `json:"ack,omitempty"`
	Limits []limit  `json:"limits,omitempty"`
	Rules  []string `json:"rules,omitempty"`
}

// distinct adds values, or only counts them.
func (s *session) distinct(ctx context.Context, body *distinctBody, args []string) error {
	if len(args) == 0 {
		return usagef("the KEY is missing")
	}
	for window := range strings.SplitSeq(body.Window, ",") {
		if err := checkWindow(strings.TrimSpace(window)); err != nil {
			return usagef("--window: %w", err)
		}
	}
	s.client.unknown = "they may or may not have been added; to repeat it is safe"
	switch {
	case len(args) > 1:
		body.Key, body.Values = args[0], args[1:]
		body.Window = strings.ReplaceAll(body.Window, " ", "")
		return s.askDistinct(ctx, http.MethodPost, nil, body)
	case len(body.Limits) > 0:
		return usagef("--limit needs a VALUE")
	case len(body.Rules) > 0:
		return usagef("--rule needs a VALUE")
	}
	return s.askDistinct(ctx, http.MethodGet, keyQuery(body.NS, args[0], body.Window), nil)
}

// distinctCount is a count of distinct values.
type distinctCount struct {
	Window  string
	Max     *int64
	Count   int64
	AtLeast int64 `json:"at_least"`
	AtMost  int64 `json:"at_most"`
	Error   float64
	Rule    string // that the limit is of, if any
	Shadow  bool
	Refused bool
}

// askDistinct sends a request and prints the answer.
func (s *session) askDistinct(ctx context.Context, method string, query url.Values,
	body any) error {
	var answer struct {
		Key    string
		Counts []distinctCount
		Over   bool
		Near   []string
		// RetryAfter is nil if nothing was refused, or if the server's version does not report it.
		RetryAfter *int64 `json:"retry_after_ms"`
		origin
	}
	err := s.call(ctx, method, "/v1/distinct", query, body, &answer)
	if err == nil && !s.json {
		fmt.Fprintf(s.Stdout, "%s (%s)\n", quoteUnprintable(answer.Key), answer.origin)
		err = distinctTable(answer.Counts).print(s.Stdout)
		s.printNear(answer.Near)
		if answer.Over && answer.RetryAfter != nil {
			fmt.Fprintln(s.Stdout, s.describeRefusal(*answer.RetryAfter,
				"more different values than a limit allows"))
		}
	}
	if err == nil && answer.Over {
		err = ErrRefused
	}
	return err
}

// distinctTable has a row for each count, and a column of limits if there are any.
func distinctTable(counts []distinctCount) *table {
	limited := slices.ContainsFunc(counts, func(c distinctCount) bool { return c.Max != nil })
	row := func(window, limit string, count any, relative, marks string) []any {
		if !limited {
			return []any{window, count, relative}
		}
		return []any{window, limit, count, relative, marks}
	}
	t := &table{left: 1}
	t.add(row("WINDOW", "LIMIT", "DIFFERENT", "ERROR", "")...)
	for _, c := range counts {
		limit, relative := "", "exact"
		if c.Max != nil {
			limit = fmt.Sprint(*c.Max)
		}
		switch {
		case c.Error > 0:
			relative = fmt.Sprintf("%.1f %%", 100*c.Error)
		case c.AtMost > c.AtLeast:
			relative = fmt.Sprintf("%d to %d", c.AtLeast, c.AtMost)
		}
		t.add(row(c.Window, limit, c.Count, relative,
			describeMarks(c.Rule, c.Shadow, c.Refused))...)
	}
	return t
}
