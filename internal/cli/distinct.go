package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/pflag"
)

func distinctSpec() spec {
	return spec{
		name: "distinct", args: "KEY [VALUE...] [--window 1h,24h] [flags]",
		summary: "add values to a key, and count different ones",
		details: "Adds the VALUES, unless a --limit forbids it, and counts how many different " +
			"ones the key has had in each window. Without a VALUE it only counts. ERROR is the " +
			"relative standard error of a count, exact if there is none. It is safe to repeat. " +
			"The exit status is 1 if a limit refused the values.",
		examples: "twotier distinct alice device-7\n" +
			"twotier distinct alice device-7 device-8 --limit 5/24h\n" +
			"twotier distinct alice --window 37m",
		bind: func(fs *pflag.FlagSet) runner {
			ns := fs.String("ns", "", "`NAMESPACE` of the key")
			windows := fs.String("window", "1h,24h", "`WINDOWS` to count, with commas between them")
			ack := fs.String("ack", "", "wait until the values are in `WHAT`: memory or redis")
			var rules limits
			fs.Var(&rules, "limit",
				"`MAX/WINDOW` of different values, such as 5/24h; may be repeated")
			return func(ctx context.Context, s *session, args []string) error {
				if len(args) == 0 {
					return usagef("the KEY is missing")
				}
				for window := range strings.SplitSeq(*windows, ",") {
					if err := checkWindow(strings.TrimSpace(window)); err != nil {
						return usagef("--window: %w", err)
					}
				}
				s.client.unknown = "they may or may not have been added; to repeat it is safe"
				if len(args) == 1 {
					if len(rules) > 0 {
						return usagef("--limit needs a VALUE")
					}
					return s.distinct(ctx, http.MethodGet, keyQuery(*ns, args[0], *windows), nil)
				}
				body := map[string]any{"key": args[0], "values": args[1:],
					"window": strings.ReplaceAll(*windows, " ", "")}
				if *ns != "" {
					body["ns"] = *ns
				}
				if *ack != "" {
					body["ack"] = *ack
				}
				if len(rules) > 0 {
					body["limits"] = rules
				}
				return s.distinct(ctx, http.MethodPost, nil, body)
			}
		},
	}
}

// distinct sends a request and prints the answer.
func (s *session) distinct(ctx context.Context, method string, query url.Values, body any) error {
	var answer struct {
		Key    string
		Counts []struct {
			Window string
			Max    *int64
			Count  int64
			Error  float64
		}
		Over bool
		origin
	}
	err := s.call(ctx, method, "/v1/distinct", query, body, &answer)
	if err == nil && !s.json {
		fmt.Fprintf(s.Stdout, "%s (%s)\n", printable(answer.Key), answer.origin)
		t := table{left: 1, rows: [][]string{{"WINDOW", "LIMIT", "DIFFERENT", "ERROR"}}}
		for _, c := range answer.Counts {
			limit, relative := "", "exact"
			if c.Max != nil {
				limit = fmt.Sprint(*c.Max)
			}
			if c.Error > 0 {
				relative = fmt.Sprintf("%.1f %%", 100*c.Error)
			}
			t.add(c.Window, limit, c.Count, relative)
		}
		err = t.print(s.Stdout)
	}
	if err == nil && answer.Over {
		err = ErrRefused
	}
	return err
}
