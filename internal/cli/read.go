package cli

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"twotier/internal/config"
)

func countSpec() spec {
	return spec{
		name: "count", args: "KEY [--window 1m,24h] [flags]", summary: "read how many events a key had",
		details: "The window ends now, or at --at. MIN and MAX bound the true number, COUNT estimates it.",
		examples: "twotier count alice\ntwotier count alice --window 37m\n" +
			"twotier count alice --json | jq '.counts[0].count'",
		bind: func(fs *flag.FlagSet) func(context.Context, *session, []string) error {
			ns := fs.String("ns", "", "`NAMESPACE` of the key")
			at := fs.Int64("at", 0, "end of the windows in unix `MILLISECONDS` rather than now")
			windows := fs.String("window", "1m,1h,24h", "`WINDOWS` to count, with commas between them")
			return func(ctx context.Context, s *session, args []string) error {
				key, err := oneKey(args)
				if err != nil {
					return err
				}
				query := keyQuery(*ns, key, *windows)
				if *at != 0 {
					query.Set("at", strconv.FormatInt(*at, 10))
				}
				return s.count(ctx, query)
			}
		},
	}
}

func keyQuery(ns, key, window string) url.Values {
	query := url.Values{"key": {key}, "window": {strings.ReplaceAll(window, " ", "")}}
	if ns != "" {
		query.Set("ns", ns)
	}
	return query
}

func (s *session) count(ctx context.Context, query url.Values) error {
	for window := range strings.SplitSeq(query.Get("window"), ",") {
		if err := checkWindow(window); err != nil {
			return usagef("--window: %w", err)
		}
	}
	var answer struct {
		Key    string
		Counts []windowCount
		Age    int64 `json:"age_ms"`
		origin
	}
	if err := s.call(ctx, http.MethodGet, "/v1/count", query, nil, &answer); err != nil || s.json {
		return err
	}
	age := ""
	if answer.Age > 0 {
		age = fmt.Sprintf(", other nodes' counts up to %s old", time.Duration(answer.Age)*time.Millisecond)
	}
	fmt.Fprintf(s.Stdout, "%s (%s%s)\n", printable(answer.Key), answer.origin, age)
	return s.printCounts(answer.Counts, nil)
}

// printCounts prints counts, beside their limits if there are such.
func (s *session) printCounts(counts []windowCount, rules limits) error {
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
		if c.Max > rules[i].Max { // as the server decides: on the most that it can be
			mark = "over"
		}
		t.add(c.Window, c.Count, c.Min, c.Max, rules[i].Max, mark)
	}
	return t.print(s.Stdout)
}

func topSpec() spec {
	return spec{
		name: "top", args: "[-n 20] [--window 1m] [flags]", summary: "list the busiest keys",
		details:  "The keys with the most events in the window, of all nodes.",
		examples: "twotier top\ntwotier top -n 5 --window 1h",
		bind: func(fs *flag.FlagSet) func(context.Context, *session, []string) error {
			n := fs.Int("n", 20, "`NUMBER` of keys")
			window := fs.String("window", "1m", "`WINDOW` to count")
			return func(ctx context.Context, s *session, args []string) error {
				if err := noArgs(args); err != nil {
					return err
				}
				if err := checkWindow(*window); err != nil {
					return usagef("--window: %w", err)
				}
				if *n < 1 {
					return usagef("--n: %d is not a number of keys", *n)
				}
				return s.top(ctx, url.Values{"n": {strconv.Itoa(*n)}, "window": {*window}})
			}
		},
	}
}

func (s *session) top(ctx context.Context, query url.Values) error {
	var answer struct {
		Keys []struct {
			NS, Key string
			Count   int64
		}
	}
	if err := s.call(ctx, http.MethodGet, "/v1/top", query, nil, &answer); err != nil || s.json {
		return err
	}
	if len(answer.Keys) == 0 {
		_, err := fmt.Fprintf(s.Stdout, "no events in the last %s\n", query.Get("window"))
		return err
	}
	t := table{left: 2, rows: [][]string{{"KEY", "NAMESPACE", "COUNT", ""}}}
	largest := max(answer.Keys[0].Count, 1)
	for _, k := range answer.Keys {
		t.add(printable(k.Key), printable(k.NS), k.Count, strings.Repeat("█", int(max(k.Count, 0)*20/largest)))
	}
	return t.print(s.Stdout)
}

func clusterSpec() spec {
	return spec{
		name: "cluster", args: "[flags]", summary: "show the members, their shares and how Redis is",
		details:  "The cluster as the server sees it that is asked.",
		examples: "twotier cluster\ntwotier cluster --server http://10.0.0.7:8080 --json",
		bind: func(*flag.FlagSet) func(context.Context, *session, []string) error {
			return func(ctx context.Context, s *session, args []string) error {
				if err := noArgs(args); err != nil {
					return err
				}
				return s.cluster(ctx)
			}
		},
	}
}

// clusterView is what a server answers about the cluster, as far as it is shown. It is not the server's own type: the
// client is to work with servers of other versions.
type clusterView struct {
	Mode       string
	Ring       uint64 `json:"ring_version"`
	Partitions int
	Members    []member
	Store      storeHealth `json:"redis"`
	Offset     int64       `json:"clock_offset_ms"`
	Skew       int64       `json:"clock_skew_ms"`
	Pending    int64       `json:"pending_buckets"`
	Keys       int64
	Memory     int64 `json:"memory_bytes"`
	MaxMemory  int64 `json:"max_memory_bytes"`
}

type member struct {
	ID, Address, State string
	Self               bool
	Partitions         int
	Share              float64
}

type storeHealth struct {
	Kind, Address, Error string
	Up                   bool
	RTT                  int64 `json:"rtt_us"`
}

func (s *session) cluster(ctx context.Context) error {
	var v clusterView
	if err := s.call(ctx, http.MethodGet, "/v1/cluster", nil, nil, &v); err != nil || s.json {
		return err
	}
	for _, line := range [][2]string{
		{"mode", v.Mode},
		{"store", s.describeStore(v.Store)},
		{"pending", strconv.FormatInt(v.Pending, 10) + " buckets not in the store yet"},
		{"memory", fmt.Sprintf("%d keys, %s of %s", v.Keys, formatSize(v.Memory), formatSize(v.MaxMemory))},
		{"clock", fmt.Sprintf("%+d ms to the store's, %d ms of it not followed yet", v.Offset, v.Skew)},
		{"ring", fmt.Sprintf("version %d, %d partitions, %d members", v.Ring, v.Partitions, len(v.Members))},
	} {
		fmt.Fprintf(s.Stdout, "%-9s%s\n", line[0], line[1])
	}
	fmt.Fprintln(s.Stdout)
	slices.SortFunc(v.Members, func(a, b member) int { return strings.Compare(a.ID, b.ID) })
	t := table{left: 3, rows: [][]string{{"MEMBER", "ADDRESS", "STATE", "PARTITIONS", "SHARE", ""}}}
	for _, m := range v.Members {
		self := ""
		if m.Self {
			self = "(asked)"
		}
		t.add(printable(m.ID), printable(m.Address), printable(m.State), m.Partitions, fmt.Sprintf("%.1f%%", m.Share*100), self)
	}
	return t.print(s.Stdout)
}

func (s *session) describeStore(h storeHealth) string {
	text := h.Kind
	if h.Address != "" {
		text += " " + h.Address
	}
	if !h.Up {
		return text + ", " + s.paint(red, "down") + ": " + h.Error
	}
	return text + ", up, round trip " + config.FormatDuration(time.Duration(h.RTT)*time.Microsecond)
}

// formatSize writes a number of bytes for people.
func formatSize(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size := float64(bytes)
	for size >= 1024 && len(units) > 1 {
		size /= 1024
		units = units[1:]
	}
	return strconv.FormatFloat(float64(int64(size*10))/10, 'f', -1, 64) + " " + units[0]
}
