package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/fields"
)

func addSpec() spec {
	return spec{
		name: "add", args: "KEY [-n 3] [--limit 15/1m]... [flags]",
		summary: "count events of a key",
		details: "Counts first and compares afterwards: --limit only reports whether a limit is " +
			"exceeded now, for alarms. A negative -n takes events back: the newest ones, or " +
			"those of --ts.",
		examples: "twotier add alice\n" +
			"twotier add login:10.0.0.1 -n 3 --limit 15/1m --limit 50/24h\n" +
			"twotier add alice -n -1 --ack redis",
		bind: func(fs *pflag.FlagSet) runner {
			body := newWriteBody(fs)
			return keyRunner(func(ctx context.Context, s *session, key string) error {
				body.Key = key
				return s.add(ctx, body)
			})
		},
	}
}

func (s *session) add(ctx context.Context, body *writeBody) error {
	if err := checkAck(body.Ack); err != nil {
		return err
	}
	n := *body.N
	if n == 0 {
		return usagef("--n: 0 events are nothing to count")
	}
	return ask(ctx, s, post("/v1/add", body), func(answer *struct {
		Counts []windowCount
		Over   bool
		origin
	}) error {
		did := fmt.Sprintf("added %d to %s", n, quoteUnprintable(body.Key))
		if n < 0 {
			// The answer omits how much the buckets held, so it may have been less.
			did = fmt.Sprintf("took up to %d back from %s", -n, quoteUnprintable(body.Key))
		}
		if answer.Over {
			did += ", over the limit"
		}
		fmt.Fprintf(s.Stdout, "%s (%s)\n", did, answer.origin)
		return s.printCounts(answer.Counts, body.Limits)
	})
}

func acquireSpec() spec {
	return spec{
		name: "acquire", args: "KEY [--limit 15/1m]... [--rule R] [flags]",
		summary: "count events of a key if its limits allow them",
		details: "Compares first, and counts only if every limit of every key holds; -n 0 asks " +
			"for room for one event and counts nothing. With " +
			"neither --limit nor --rule the default rules of the namespace judge. Several keys, " +
			"all or nothing: --check KEY:15/1m,50/24h for each, instead of KEY and --limit.\n\n" +
			"Exit status: 0 allowed, 3 refused, 1 no answer, 2 wrong usage.",
		examples: "twotier acquire alice --limit 15/1m --limit 50/24h\n" +
			"twotier acquire alice --rule login\n" +
			"twotier acquire --check user:7:15/1m,50/24h --check ip:10.0.0.1:100/1m\n" +
			"if twotier acquire deploy --limit 1/10m; then ./deploy.sh; fi",
		bind: func(fs *pflag.FlagSet) runner {
			body := newWriteBody(fs)
			fs.StringVar(&body.Hold, "hold", "",
				"`DURATION` in which twotier settle can correct the counts, up to 24h")
			fs.StringVar(&body.OnExpiry, "on-expiry", "",
				"keep (the default) or release the counts of a hold that nobody has settled")
			concurrent := fs.Int64("concurrent", 0,
				"`NUMBER` of holds of a key that may be open at the same time")
			rulesVar(fs, &body.Rules, "`NAME` of a rule of the server; may be repeated")
			fs.Func("check", "`KEY:MAX/WINDOW,...`; may be repeated", body.addCheck)
			for f := range fields.Booleans.All() {
				name, help := f.Flag()
				fs.BoolVar(f.Value(&body.op), name, false, help)
			}
			return func(ctx context.Context, s *session, args []string) error {
				if err := body.complete(args, *concurrent); err != nil {
					return err
				}
				return s.acquire(ctx, body)
			}
		},
	}
}

// decision is an acquire's answer for one key.
type decision struct {
	Key     string
	Allowed bool
	Limits  []struct {
		Window                string
		Max, Count, Remaining int64
		Concurrent, Open      int64 // of a limit on open holds, in place of these
		Refused               bool
		Rule                  string // the limit is part of, if any
		Shadow                bool   // of the rule
	}
	RetryAfter int64 `json:"retry_after_ms"`
	TS         int64 // of the count; 0 if nothing was counted
}

// ban is a ban in force, as in the answer to an acquire.
type ban struct {
	Rule, Key string
	Until     int64 // unix milliseconds
	Started   bool  // by this refusal
}

func (s *session) acquire(ctx context.Context, body *writeBody) error {
	var answer struct {
		decision
		Checks []decision
		Near   []string
		Bans   []ban
		Hold   string
		Until  int64
		origin
	}
	if err := s.call(ctx, post("/v1/acquire", body), &answer); err != nil {
		return err
	}
	if !s.json {
		decisions := answer.Checks
		if body.check != nil {
			answer.Key = body.Key
			decisions = []decision{answer.decision}
		}
		verdict := describeVerdict(answer.decision, body)
		isCounted := func(d decision) bool { return d.TS != 0 }
		if !answer.Allowed && slices.ContainsFunc(decisions, isCounted) {
			verdict += "; the events were counted"
		}
		fmt.Fprintf(s.Stdout, "%s (%s)\n", verdict, answer.origin)
		if err := s.printDecisions(decisions); err != nil {
			return err
		}
		s.printNear(answer.Near)
		s.printBans(answer.Bans)
		if answer.Hold != "" {
			fmt.Fprintf(s.Stdout, "hold %s until %s\n", answer.Hold, formatSecond(answer.Until))
		}
	}
	if !answer.Allowed {
		return ErrRefused
	}
	return nil
}

func describeVerdict(d decision, asked *writeBody) string {
	switch {
	case d.Allowed:
		return "allowed"
	case asked.exceedsOnlyTogether():
		return describeRefusal(d.RetryAfter,
			"checks of the same key are more than a limit together")
	}
	return describeRefusal(d.RetryAfter, "-n is more than a limit")
}

// exceedsOnlyTogether reports whether every check by itself fits its limits, so that only several
// checks of the same key together can exceed one.
func (b *writeBody) exceedsOnlyTogether() bool {
	return len(b.Checks) > 1 && !slices.ContainsFunc(b.Checks, func(c check) bool {
		return slices.ContainsFunc(c.Limits, func(l limit) bool { return *c.N > l.Max })
	})
}

// printNear prints which limits of rules allow, but have reached the warning level of their rule.
func (s *session) printNear(limits []string) {
	if len(limits) > 0 {
		fmt.Fprintf(s.Stdout, "near: %s\n", strings.Join(limits, ", "))
	}
}

// printBans prints which rule bans which key, and until when.
func (s *session) printBans(bans []ban) {
	for _, b := range bans {
		since := ""
		if b.Started {
			since = ", from this refusal on"
		}
		fmt.Fprintf(s.Stdout, "rule %s bans %s until %s%s\n", b.Rule, quoteUnprintable(b.Key),
			formatSecond(b.Until), since)
	}
}

func (s *session) printDecisions(decisions []decision) error {
	t := table{left: 2, rows: [][]string{{"KEY", "WINDOW", "LIMIT", "COUNT", "REMAINING", ""}}}
	for _, d := range decisions {
		for _, l := range d.Limits {
			if l.Concurrent > 0 {
				l.Window, l.Max, l.Count = "open", l.Concurrent, l.Open
			}
			t.add(quoteUnprintable(d.Key), l.Window, l.Max, l.Count, l.Remaining,
				describeMarks(l.Rule, l.Shadow, l.Refused))
		}
	}
	return t.print(s.Stdout)
}

func resetSpec() spec {
	return spec{
		name: "reset", args: "KEY [flags]", summary: "forget a key",
		details: "Forgets all counts of a key in memory and in Redis, on every node. There is no " +
			"way back.",
		examples: "twotier reset alice\ntwotier reset alice --ns login",
		bind: func(fs *pflag.FlagSet) runner {
			ns := fs.String("ns", "", "`NAMESPACE` of the key")
			return keyRunner(func(ctx context.Context, s *session, key string) error {
				q := post("/v1/reset", check{NS: *ns, Key: key})
				return ask(ctx, s, q, func(*struct{}) error {
					return s.printf("forgot %s\n",
						strings.TrimPrefix(*ns+":"+quoteUnprintable(key), ":"))
				})
			})
		},
	}
}

func settleSpec() spec {
	return spec{
		name: "settle", args: "ID NUMBER", summary: "correct the counts of a hold",
		details: "Makes the count of a hold NUMBER events for each of its keys, at the time of " +
			"the hold, even if they exceed a limit, and up to ten minutes after its end. 0 " +
			"releases the hold. To settle again changes nothing.",
		examples: "twotier acquire team:7 -n 800 --limit 1000/1m --hold 90s\n" +
			"twotier settle \"$id\" 1234",
		bind: func(*pflag.FlagSet) runner {
			return func(ctx context.Context, s *session, args []string) error {
				id, text, err := holdArgs(args, "a number of events")
				if err != nil {
					return err
				}
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil || n < 0 {
					return usagef("%q is not a number of events", text)
				}
				q := post("/v1/settle", map[string]any{"hold": id, "n": n})
				return ask(ctx, s, q, func(a *settlement) error {
					return s.printf("%s\n", a.describe(n))
				})
			}
		},
	}
}

func holdArgs(args []string, second string) (id, value string, err error) {
	if len(args) != 2 {
		return "", "", usagef("want the id of a hold and %s", second)
	}
	return args[0], args[1], nil
}

// settlement is the answer to a settlement.
type settlement struct {
	Repeated, Late bool
	Over           []string
}

func (a *settlement) describe(n int64) string {
	did := fmt.Sprintf("settled with %d", n)
	switch {
	case a.Repeated:
		did = "settled before, nothing was changed"
	case a.Late:
		did += ", after the end of the hold"
	}
	if len(a.Over) > 0 {
		did += ", over " + strings.Join(a.Over, " and ")
	}
	return did
}

func renewSpec() spec {
	return spec{
		name: "renew", args: "ID DURATION", summary: "move the end of a hold",
		details: "Moves the end of a hold to DURATION from now, at most 24 hours after it began, " +
			"and prints the id that takes the place of the old one.",
		examples: "id=$(twotier renew \"$id\" 5m)",
		bind: func(*pflag.FlagSet) runner {
			return func(ctx context.Context, s *session, args []string) error {
				id, lasts, err := holdArgs(args, "a duration")
				if err != nil {
					return err
				}
				if err := checkWindow(lasts); err != nil {
					return usagef("%w", err)
				}
				q := post("/v1/renew", map[string]string{"hold": id, "for": lasts})
				return ask(ctx, s, q, func(a *struct{ Hold string }) error {
					return s.printf("%s\n", a.Hold)
				})
			}
		},
	}
}

func holdsSpec() spec {
	return spec{
		name: "holds", args: "KEY [flags]", summary: "read how many holds of a key are open",
		details: "Of the holds that were made under a limit on concurrent ones, and when the " +
			"first of them ends unless it is settled or renewed.",
		examples: "twotier acquire user:bob --concurrent 5 --hold 30s\ntwotier holds user:bob",
		bind: func(fs *pflag.FlagSet) runner {
			ns := fs.String("ns", "", "`NAMESPACE` of the key")
			return keyRunner(func(ctx context.Context, s *session, key string) error {
				q := get("/v1/holds", queryOf("ns", *ns, "key", key))
				return ask(ctx, s, q, func(a *struct {
					Key  string
					Open int64
					Next int64 `json:"next_end_ms"`
					origin
				}) error {
					next := ""
					if a.Next > 0 {
						next = ", the next ends in " + twotier.FormatMillis(a.Next)
					}
					return s.printf("%s: %d open%s (%s)\n", quoteUnprintable(a.Key), a.Open, next,
						a.origin)
				})
			})
		},
	}
}
