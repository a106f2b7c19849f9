package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
)

func clusterSpec() spec {
	return spec{
		name: "cluster", args: "[--watch] [flags]",
		summary: "show the members, who owns what, and how Redis is",
		details: "The cluster as the server that is asked sees it, and what every member reports " +
			"about itself. OWNS: partitions that the table assigns to a member. HAS: those that " +
			"it decides about. MOVING: those on their way (+ to it, - from it). FORWARDED: the " +
			"share of its operations that it passed on to owners. suspect: it does not answer, " +
			"and others take its place.",
		examples: "twotier cluster\n" +
			"twotier cluster --watch\n" +
			"twotier cluster --server http://10.0.0.7:8080 --json",
		alone: true,
		bind: func(fs *pflag.FlagSet) runner {
			watch := fs.Bool("watch", false, "show it again every second, until Ctrl-C")
			return func(ctx context.Context, s *session, _ []string) error {
				return s.watch(ctx, *watch, s.showCluster, url.Values{"nodes": {"true"}})
			}
		},
	}
}

// clusterView is a server's answer about the cluster.
type clusterView struct{ cluster.View }

// version returns the version of the member that answers, or "".
func (v *clusterView) version() string {
	for _, m := range v.Members {
		if m.Self && m.Status != nil {
			return m.Status.Version
		}
	}
	return ""
}

// describeClock describes the clock that the server uses.
func (v *clusterView) describeClock() string {
	line := fmt.Sprintf("%+d ms to the store's, %d ms of it not followed yet", v.ClockOffsetMS,
		v.ClockSkewMS)
	if v.ClockDoubt != "" {
		line += ", in doubt (" + v.ClockDoubt + "): answers are degraded"
	}
	return line
}

func (s *session) showCluster(ctx context.Context, query url.Values) error {
	var v clusterView
	if err := s.call(ctx, get("/v1/cluster", query), &v); err != nil || s.json {
		return err
	}
	on := ""
	if len(v.Members) > 1 {
		on = " on this node"
	}
	lines := [][2]string{
		{"mode", string(v.Mode)},
		{"store", describeStore(v.Store)},
		{"pending", strconv.FormatInt(v.PendingBuckets, 10) + " buckets not in the store yet" + on},
		{"memory", fmt.Sprintf("%s, %s of %s", countOf(int(v.Keys), "key"),
			formatSize(v.MemoryBytes), formatSize(v.MaxMemory)) + on},
		{"clock", v.describeClock()},
		{"ring", fmt.Sprintf("version %d, %d partitions, %s", v.RingVersion, v.Partitions,
			countOf(len(v.Members), "member"))},
	}
	for _, line := range lines {
		fmt.Fprintf(s.Stdout, "%-9s%s\n", line[0], line[1])
	}
	fmt.Fprintln(s.Stdout)
	return s.printMembers(&v)
}

func countOf(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// printMembers prints one row per member.
func (s *session) printMembers(v *clusterView) error {
	t := table{left: 4, rows: [][]string{{"MEMBER", "ADDRESS", "STATE", "MODE", "OWNS", "SHARE",
		"HAS", "MOVING", "PENDING", "KEYS", "FORWARDED", ""}}}
	for i := range v.Members {
		m := &v.Members[i]
		row := []any{quoteUnprintable(m.ID), quoteUnprintable(m.Address),
			quoteUnprintable(string(m.State)), quoteUnprintable(string(m.Mode)), m.Partitions,
			fmt.Sprintf("%.1f%%", m.Share*100)}
		if st := m.Status; st != nil {
			row[3] = quoteUnprintable(string(st.Mode))
			row = append(row, st.Held, formatMoves(st), st.PendingBuckets, st.Keys,
				fmt.Sprintf("%.1f%%", 100*float64(st.Forwarded)/float64(max(st.Ops, 1))))
		} else {
			row = append(row, "?", "?", "?", "?", "?")
		}
		t.add(append(row, memberNotes(v, m))...)
	}
	return t.print(s.Stdout)
}

// formatMoves returns how many partitions are moving to a member and away from it, such as "+3 -2".
func formatMoves(st *cluster.Status) string {
	var parts []string
	if st.Incoming > 0 {
		parts = append(parts, "+"+strconv.Itoa(st.Incoming))
	}
	if n := st.Outgoing + st.Moving; n > 0 {
		parts = append(parts, "-"+strconv.Itoa(n))
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, " ")
}

// memberNotes returns notes about a member, in parentheses, or "" if there are none.
func memberNotes(v *clusterView, m *cluster.Member) string {
	var list []string
	if m.Self {
		list = append(list, "asked")
	}
	switch st := m.Status; {
	case st == nil:
		list = append(list, "no answer")
	case st.RingVersion != v.RingVersion:
		list = append(list, "sees other members")
	case !st.StoreUp:
		list = append(list, "its store is down")
	}
	if st := m.Status; st != nil && !m.Self && st.Version != v.version() {
		list = append(list, "version "+quoteUnprintable(cmp.Or(st.Version, "unknown")))
	}
	if len(list) == 0 {
		return ""
	}
	return "(" + strings.Join(list, ", ") + ")"
}

func describeStore(h cluster.StoreHealth) string {
	text := h.Kind
	if h.Address != "" {
		text += " " + h.Address
	}
	if !h.Up {
		return text + ", down: " + h.Error
	}
	trip := "-" // not measured yet
	if h.RTTMicros > 0 {
		trip = twotier.FormatDuration(time.Duration(h.RTTMicros) * time.Microsecond)
	}
	return text + ", up, round trip " + trip
}

func bansSpec() spec {
	return spec{
		name: "bans", args: "[KEY] [--rule login] [flags]",
		summary: "list the keys that rules have banned",
		details: "The bans that nodes have seen start, or refuse something, and that hold now, " +
			"those that end last first: of all rules, of a namespace, or of one rule. With a " +
			"KEY it asks about that one, whether or not a node has heard of its ban.",
		examples: "twotier bans\ntwotier bans --rule login\ntwotier bans alice --rule login",
		bind: func(fs *pflag.FlagSet) runner {
			ns := fs.String("ns", "", "`NAMESPACE` of the keys")
			rule := fs.String("rule", "", "`NAME` of the rule")
			n := fs.IntP("n", "n", 100, "`NUMBER` of bans at most")
			return func(ctx context.Context, s *session, args []string) error {
				key, err := "", error(nil)
				if len(args) > 0 {
					if key, err = OneKey(args); err != nil {
						return err
					}
					if *rule == "" {
						return usagef("a KEY needs --rule")
					}
				}
				return s.showBans(ctx, queryOf("n", strconv.Itoa(*n), "ns", *ns, "rule", *rule,
					"key", key))
			}
		},
	}
}

func (s *session) showBans(ctx context.Context, query url.Values) error {
	return ask(ctx, s, get("/v1/bans", query), func(answer *struct {
		Bans []struct {
			NS, Rule, Key string
			RetryAfter    int64 `json:"retry_after_ms"`
		}
	}) error {
		t := table{left: 3, rows: [][]string{{"NAMESPACE", "RULE", "KEY", "ENDS IN"}}}
		for _, b := range answer.Bans {
			left := (time.Duration(b.RetryAfter) * time.Millisecond).Round(time.Second)
			t.add(b.NS, b.Rule, quoteUnprintable(b.Key),
				twotier.FormatDuration(max(left, time.Second)))
		}
		return t.print(s.Stdout)
	})
}

func unbanSpec() spec {
	return spec{
		name: "unban", args: "KEY --rule login [flags]", summary: "lift the ban of a key",
		details: "Ends the ban of a key by a rule on every node. Its counts stay, so the " +
			"rule bans it again if it is still over a limit; twotier reset forgets them.",
		examples: "twotier unban alice --rule login",
		bind: func(fs *pflag.FlagSet) runner {
			rule := fs.String("rule", "", "`NAME` of the rule that bans the key")
			return keyRunner(func(ctx context.Context, s *session, key string) error {
				if *rule == "" {
					return usagef("--rule is missing")
				}
				s.client.unknown = "it may or may not have been lifted"
				q := post("/v1/unban", map[string]string{"rule": *rule, "key": key})
				return ask(ctx, s, q, func(a *struct{ Lifted bool }) error {
					text := "%s was not banned by %s\n"
					if a.Lifted {
						text = "lifted the ban of %s by %s\n"
					}
					return s.printf(text, quoteUnprintable(key), *rule)
				})
			})
		},
	}
}

// modeTimeout is the default --timeout of mode: a change waits for all nodes to flush.
const modeTimeout = 15 * time.Second

func modeSpec() spec {
	return spec{
		name: "mode", args: "[two-tier|redis] [flags]",
		summary: "show how the cluster counts, or change it while it runs",
		details: "two-tier: memory answers, Redis remembers. redis: one script in Redis per " +
			"request. Without an argument it shows the current mode. A change applies to all " +
			"nodes and loses no count: requests wait until every node has flushed its " +
			"counts to Redis. If a node can't, nothing changes. It takes the --admin-token of " +
			"the servers, or a token with the role admin. Where they have --admin, name that " +
			"address: --server http://127.0.0.1:8090.",
		examples: "twotier mode\n" +
			"TWOTIER_ADMIN_TOKEN=... twotier mode redis\n" +
			"TWOTIER_ADMIN_TOKEN=... twotier mode two-tier --server http://10.0.0.7:8080",
		timeout: modeTimeout,
		valid:   []string{"two-tier", "redis"},
		bind: func(fs *pflag.FlagSet) runner {
			token := fs.String("admin-token", "",
				"`TEXT` that the servers were started with (default $TWOTIER_ADMIN_TOKEN)")
			return func(ctx context.Context, s *session, args []string) error {
				switch {
				case len(args) == 0:
					return ask(ctx, s, get("/v1/cluster", nil), func(v *clusterView) error {
						return s.printf("%s\n", v.Mode)
					})
				case len(args) > 1:
					return usagef("unexpected argument %q", args[1])
				case args[0] != "two-tier" && args[0] != "redis":
					return usagef("%q is neither two-tier nor redis", args[0])
				}
				s.client.token = cmp.Or(*token, s.getenv("TWOTIER_ADMIN_TOKEN"), s.client.token)
				if s.client.token == "" {
					return usagef("--admin-token: missing; better, set TWOTIER_ADMIN_TOKEN, or " +
						"TWOTIER_TOKEN to one with the role admin")
				}
				return s.setMode(ctx, args[0])
			}
		},
	}
}

func (s *session) setMode(ctx context.Context, mode string) error {
	s.client.unknown = "it may or may not have changed; twotier mode tells"
	q := post("/v1/admin/mode", map[string]string{"mode": mode})
	err := ask(ctx, s, q, func(a *struct{ Mode string }) error {
		return s.printf("all nodes count in %s mode\n", a.Mode)
	})
	if p, ok := errors.AsType[*Problem](err); ok && p.Status == http.StatusUnauthorized {
		return fmt.Errorf("%s does not know this token: it is neither its --admin-token nor "+
			"one of its --tokens", s.client.address())
	}
	return err
}
