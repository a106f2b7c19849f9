package cli

import (
	"context"
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
				return s.unban(ctx, *rule, key)
			})
		},
	}
}

func (s *session) unban(ctx context.Context, rule, key string) error {
	var answer struct{ Lifted bool }
	err := s.call(ctx, http.MethodPost, "/v1/unban", nil,
		map[string]string{"rule": rule, "key": key}, &answer)
	switch {
	case err != nil || s.json:
		return err
	case answer.Lifted:
		return s.printf("lifted the ban of %s by %s\n", quoteUnprintable(key), rule)
	}
	return s.printf("%s was not banned by %s\n", quoteUnprintable(key), rule)
}
