package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
)

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
	var answer struct {
		Bans []struct {
			NS, Rule, Key string
			RetryAfter    int64 `json:"retry_after_ms"`
		}
	}
	err := s.call(ctx, http.MethodGet, "/v1/bans", query, nil, &answer)
	if err != nil || s.json {
		return err
	}
	t := table{left: 3, rows: [][]string{{"NAMESPACE", "RULE", "KEY", "ENDS IN"}}}
	for _, b := range answer.Bans {
		left := (time.Duration(b.RetryAfter) * time.Millisecond).Round(time.Second)
		t.add(b.NS, b.Rule, quoteUnprintable(b.Key), twotier.FormatDuration(max(left, time.Second)))
	}
	return t.print(s.Stdout)
}

func unbanSpec() spec {
	return spec{
		name: "unban", args: "KEY --rule login [flags]", summary: "lift the ban of a key",
		details: "Ends the ban of a key by a rule on every node. What is counted of it stays, " +
			"so the rule bans it again if it is still over a limit; twotier reset forgets that.",
		examples: "twotier unban alice --rule login",
		bind: func(fs *pflag.FlagSet) runner {
			rule := fs.String("rule", "", "`NAME` of the rule that bans the key")
			return keyRunner(func(ctx context.Context, s *session, key string) error {
				if *rule == "" {
					return usagef("--rule is missing")
				}
				s.client.unknown = "it may or may not have been lifted"
				var answer struct{ Lifted bool }
				err := s.call(ctx, http.MethodPost, "/v1/unban", nil,
					map[string]string{"rule": *rule, "key": key}, &answer)
				switch {
				case err != nil || s.json:
					return err
				case answer.Lifted:
					return s.printf("lifted the ban of %s by %s\n", quoteUnprintable(key), *rule)
				}
				return s.printf("%s was not banned by %s\n", quoteUnprintable(key), *rule)
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
			"nodes and loses no count: requests wait until every node has flushed what it " +
			"counted to Redis. If a node can't, nothing changes. It takes the --admin-token of " +
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
					return s.showMode(ctx)
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

func (s *session) showMode(ctx context.Context) error {
	var v clusterView
	if err := s.call(ctx, http.MethodGet, "/v1/cluster", nil, nil, &v); err != nil || s.json {
		return err
	}
	return s.printf("%s\n", v.Mode)
}

func (s *session) setMode(ctx context.Context, mode string) error {
	s.client.unknown = "it may or may not have changed; twotier mode tells"
	var answer struct{ Mode string }
	err := s.call(ctx, http.MethodPost, "/v1/admin/mode", nil, map[string]string{"mode": mode},
		&answer)
	if p, ok := errors.AsType[*Problem](err); ok && p.Status == http.StatusUnauthorized {
		return fmt.Errorf("%s does not know this token: it is neither its --admin-token nor "+
			"one of its --tokens", s.client.address())
	}
	if err != nil || s.json {
		return err
	}
	return s.printf("all nodes count in %s mode\n", answer.Mode)
}
