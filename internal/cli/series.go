package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
)

func seriesSpec() spec {
	return spec{
		name: "series", args: "KEY [--window 1h] [flags]",
		summary: "plot the events of a key over time",
		details: "Draws a bar for each bucket of a window that ends now. Bars are joined where " +
			"the terminal is too narrow for all. Colours are for terminals only, and not used if " +
			"NO_COLOR is set.",
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
	if err := s.call(ctx, http.MethodGet, "/v1/series", query, nil, &answer); err != nil || s.json {
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
		fmt.Fprintf(&out, "%8s ┤%s\n", label, s.paint(cyan, strings.TrimRight(string(line), " ")))
	}
	fmt.Fprintf(&out, "%8s └%s\n", "0", strings.Repeat("─", len(bars)))
	gap := max(len(bars)-len(span)-len("now")-1, 1)
	fmt.Fprintf(&out, "%8s  -%s%snow\n", "", span, strings.Repeat(" ", gap))
	return s.printf("%s", out.String())
}
