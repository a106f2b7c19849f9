package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
)

func countSpec() spec {
	return spec{
		name: "count", args: "KEY [--window 1m,24h] [flags]",
		summary: "read how many events a key had",
		details: "The window ends now, or at --at. MIN and MAX bound the true number, COUNT " +
			"estimates it.",
		examples: "twotier count alice\n" +
			"twotier count alice --window 37m,month@Europe/Lisbon\n" +
			"twotier count alice --json | jq '.counts[0].count'",
		bind: func(fs *pflag.FlagSet) runner {
			ns := fs.String("ns", "", "`NAMESPACE` of the key")
			at := fs.Int64("at", 0, "end of the windows in unix `MILLISECONDS` rather than now")
			windows := fs.String("window", "1m,1h,24h",
				"`WINDOWS` to count, with commas between them")
			return keyRunner(func(ctx context.Context, s *session, key string) error {
				query := keyQuery(*ns, key, *windows)
				if *at != 0 {
					query.Set("at", strconv.FormatInt(*at, 10))
				}
				return s.showCount(ctx, query)
			})
		},
	}
}

func (s *session) showCount(ctx context.Context, query url.Values) error {
	for window := range strings.SplitSeq(query.Get("window"), ",") {
		if err := checkLimitWindow(window); err != nil {
			return usagef("--window: %w", err)
		}
	}
	return ask(ctx, s, get("/v1/count", query), func(answer *struct {
		Key    string
		Counts []windowCount
		Age    int64 `json:"age_ms"`
		origin
	}) error {
		age := ""
		if d := time.Duration(answer.Age) * time.Millisecond; d >= notableAge {
			age = fmt.Sprintf(", last in step with the store %s ago", d)
		}
		fmt.Fprintf(s.Stdout, "%s (%s%s)\n", quoteUnprintable(answer.Key), answer.origin, age)
		return s.printCounts(answer.Counts, nil)
	})
}

// notableAge is the least age that is shown. An age of one or two flush intervals is normal.
const notableAge = time.Second

func topSpec() spec {
	return spec{
		name: "top", args: "[-n 20] [--window 1m] [--watch] [flags]",
		summary: "list the busiest keys, or the most refused",
		details: "The keys of all nodes by events or, with --by refused, by refusals, or with " +
			"--by shadow by refusals of rules in shadow. --by concurrent lists the keys with the " +
			"most holds that are open now.",
		examples: "twotier top\ntwotier top --watch --by refused\n" +
			"twotier top --by concurrent\ntwotier top --prefix user: --by refused\n" +
			"twotier top -n 5 --window 1h --json",
		alone: true,
		bind: func(fs *pflag.FlagSet) runner {
			n := fs.IntP("n", "n", 20, "`NUMBER` of keys")
			window := fs.String("window", "1m", "`WINDOW` to count")
			by := fs.String("by", "count",
				"`WHAT` to order by: count, refused, shadow or concurrent")
			prefix := fs.String("prefix", "", "`TEXT` that the keys begin with")
			watch := fs.Bool("watch", false, "list them again every second, until Ctrl-C")
			fs.Bool("once", true, "the default")
			_ = fs.MarkHidden("once") // for scripts: it was not the default in 0.1.0
			return func(ctx context.Context, s *session, _ []string) error {
				if err := checkWindow(*window); err != nil {
					return usagef("--window: %w", err)
				}
				if *n < 1 {
					return usagef("--n: %d is not a number of keys", *n)
				}
				query := queryOf("n", strconv.Itoa(*n), "window", *window, "prefix", *prefix)
				switch *by {
				case "concurrent":
					if *prefix != "" {
						return usagef("--prefix: --by concurrent lists all keys")
					}
					if fs.Changed("window") {
						return usagef("--window: --by concurrent lists the holds that are open now")
					}
					query.Del("window")
					query.Set("by", *by)
				case "refused", "shadow":
					query.Set("by", *by)
				case "count":
				default:
					return usagef("--by: %q is none of count, refused, shadow and concurrent", *by)
				}
				return s.watch(ctx, *watch, s.showTop, query)
			}
		},
	}
}

func (s *session) showTop(ctx context.Context, query url.Values) error {
	var answer struct{ Keys []twotier.KeyCount } // of events or, on request, refusals or open holds
	if err := s.call(ctx, get("/v1/top", query), &answer); err != nil || s.json {
		return err
	}
	keys := answer.Keys
	events, count := "events", "COUNT"
	switch query.Get("by") {
	case "refused":
		events, count = "refusals", "REFUSED"
	case "shadow":
		events, count = "refusals in shadow", "IN SHADOW"
	case "concurrent":
		events, count = "open holds", "OPEN"
	}
	if len(keys) == 0 {
		return s.printf("%s\n", describeNone(events, query))
	}
	t := table{left: 2, rows: [][]string{{"KEY", "NAMESPACE", count, ""}}}
	largest := max(keys[0].Count, 1)
	for _, k := range keys {
		t.add(quoteUnprintable(k.Key), quoteUnprintable(k.NS), k.Count,
			strings.Repeat("█", int(max(k.Count, 0)*20/largest)))
	}
	return t.print(s.Stdout)
}

// describeNone describes a list of the top keys that is empty.
func describeNone(events string, query url.Values) string {
	window := query.Get("window")
	if window == "" {
		return "no " + events
	}
	if prefix := query.Get("prefix"); prefix != "" {
		events += " of keys that begin with " + quoteUnprintable(prefix)
	}
	text := "no " + events + " in the last " + window
	history := map[string]string{"refused": "@all/refused", "shadow": "@all/shadow_refused"}
	if key := history[query.Get("by")]; key != "" {
		text += " since the nodes started; older ones: twotier series " + key +
			" --ns @verdicts --window " + window
	}
	return text
}

func seriesSpec() spec {
	return spec{
		name: "series", args: "KEY [--window 1h] [flags]",
		summary: "plot the events of a key over time",
		details: "Draws a bar for each bucket of a window that ends now. Bars are joined where " +
			"the terminal is too narrow for all.",
		examples: "twotier series alice\n" +
			"twotier series alice --window 24h\n" +
			"twotier series alice --json",
		bind: func(fs *pflag.FlagSet) runner {
			ns := fs.String("ns", "", "`NAMESPACE` of the key")
			window := fs.String("window", "1h", "`WINDOW` to plot")
			return keyRunner(func(ctx context.Context, s *session, key string) error {
				if err := checkWindow(*window); err != nil {
					return usagef("--window: %w", err)
				}
				return s.showSeries(ctx, keyQuery(*ns, key, *window))
			})
		},
	}
}

func (s *session) showSeries(ctx context.Context, query url.Values) error {
	var answer struct {
		Key    string
		Bucket int64 `json:"bucket_ms"`
		Points [][2]int64
	}
	if err := s.call(ctx, get("/v1/series", query), &answer); err != nil || s.json {
		return err
	}
	var total int64
	for _, p := range answer.Points {
		total += p[1]
	}
	if total == 0 || answer.Bucket <= 0 {
		return s.printf("%s: no events in the last %s\n", quoteUnprintable(answer.Key),
			query.Get("window"))
	}
	bars, width := joinPoints(answer.Points, answer.Bucket, s.width()-12)
	fmt.Fprintf(s.Stdout, "%s: %d events in the last %s, a bar is %s\n",
		quoteUnprintable(answer.Key), total, query.Get("window"), twotier.FormatMillis(width))
	return s.plot(bars, twotier.FormatMillis(width*int64(len(bars))))
}

// joinPoints adds buckets up to at most most bars of equal width, and returns the bars and their
// width in milliseconds. Buckets without a point count as zero.
func joinPoints(points [][2]int64, bucket int64, most int) (bars []int64, width int64) {
	first, last := points[0][0], points[0][0]
	for _, p := range points {
		first, last = min(first, p[0]), max(last, p[0])
	}
	buckets := (last-first)/bucket + 1
	per := (buckets + int64(most) - 1) / int64(most)
	bars = make([]int64, (buckets+per-1)/per)
	for _, p := range points {
		// Count from the end, so that only the oldest bar may have fewer buckets.
		back := (last - p[0]) / bucket / per
		bars[int64(len(bars))-1-back] += p[1]
	}
	return bars, bucket * per
}

// plot draws the bars, with eight steps per row.
func (s *session) plot(bars []int64, span string) error {
	const rows = 8
	steps := []rune(" ▁▂▃▄▅▆▇█")
	var largest int64 = 1
	for _, b := range bars {
		largest = max(largest, b)
	}
	var out strings.Builder
	for row := rows - 1; row >= 0; row-- {
		label := ""
		if row == rows-1 {
			label = strconv.FormatInt(largest, 10)
		}
		line := make([]rune, len(bars))
		for i, b := range bars {
			// Round up to keep the smallest count visible.
			height := int((float64(max(b, 0))*rows*8)/float64(largest) + 0.999)
			line[i] = steps[min(max(height-row*8, 0), 8)]
		}
		fmt.Fprintf(&out, "%8s ┤%s\n", label, strings.TrimRight(string(line), " "))
	}
	fmt.Fprintf(&out, "%8s └%s\n", "0", strings.Repeat("─", len(bars)))
	gap := max(len(bars)-len(span)-len("now")-1, 1)
	fmt.Fprintf(&out, "%8s  -%s%snow\n", "", span, strings.Repeat(" ", gap))
	return s.printf("%s", out.String())
}

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
		return s.askDistinct(ctx, post("/v1/distinct", body))
	case len(body.Limits) > 0:
		return usagef("--limit needs a VALUE")
	case len(body.Rules) > 0:
		return usagef("--rule needs a VALUE")
	}
	return s.askDistinct(ctx, get("/v1/distinct", keyQuery(body.NS, args[0], body.Window)))
}

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
func (s *session) askDistinct(ctx context.Context, q question) error {
	var answer struct {
		Key    string
		Counts []distinctCount
		Over   bool
		Near   []string
		// RetryAfter is nil if nothing was refused, or if the server's version does not report it.
		RetryAfter *int64 `json:"retry_after_ms"`
		origin
	}
	err := s.call(ctx, q, &answer)
	if err == nil && !s.json {
		fmt.Fprintf(s.Stdout, "%s (%s)\n", quoteUnprintable(answer.Key), answer.origin)
		err = distinctTable(answer.Counts).print(s.Stdout)
		s.printNear(answer.Near)
		if answer.Over && answer.RetryAfter != nil {
			fmt.Fprintln(s.Stdout, describeRefusal(*answer.RetryAfter,
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
