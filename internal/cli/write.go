package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/fields"
)

// ackLevels returns the values of --ack: the levels that a write may wait for.
func ackLevels() []string { return []string{"memory", "redis", "replica", "disk"} }

// ackVar adds the flag of the level that a write waits for.
func ackVar(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "ack", "",
		"`WHAT` to wait for: memory, redis, replica or disk (default as the server has it)")
	_ = fs.SetAnnotation("ack", config.ChoicesAnnotation, ackLevels()) // the flag exists
}

// checkAck checks the value of that flag.
func checkAck(ack string) error {
	if ack != "" && !slices.Contains(ackLevels(), ack) {
		return usagef("--ack: %q is not one of memory, redis, replica or disk", ack)
	}
	return nil
}

// check is one key with its limits, as in a request. N is nil if the request counts no events.
type check struct {
	NS     string   `json:"ns,omitempty"`
	Key    string   `json:"key"`
	N      *int64   `json:"n,omitempty"`
	Limits []limit  `json:"limits,omitempty"`
	Rules  []string `json:"rules,omitempty"`
}

// writeBody is the body of an add or an acquire, which flags fill.
type writeBody struct {
	*check
	TS       int64   `json:"ts,omitempty"`
	Ack      string  `json:"ack,omitempty"`
	Hold     string  `json:"hold,omitempty"`
	OnExpiry string  `json:"on_expiry,omitempty"`
	Checks   []check `json:"checks,omitempty"`

	op twotier.Op // its booleans
}

// MarshalJSON adds the booleans that are set.
func (b *writeBody) MarshalJSON() ([]byte, error) {
	type plain writeBody
	text, err := json.Marshal((*plain)(b))
	for f := range fields.Booleans.All() {
		if err == nil && *f.Value(&b.op) {
			text = fmt.Appendf(text[:len(text)-1], `,%q:true}`, f.Name())
		}
	}
	return text, err
}

// newWriteBody returns a body with the flags of the commands that count events.
func newWriteBody(fs *pflag.FlagSet) *writeBody {
	b := &writeBody{check: &check{}}
	fs.StringVar(&b.NS, "ns", "", "`NAMESPACE` of the key")
	b.N = fs.Int64P("n", "n", 1, "`NUMBER` of events")
	fs.Int64Var(&b.TS, "ts", 0, "time of the events in unix `MILLISECONDS` rather than now")
	ackVar(fs, &b.Ack)
	limitsVar(fs, &b.Limits, "`MAX/WINDOW`, such as 15/1m (or 1m=15) or 50/day@Asia/Shanghai; "+
		"may be repeated")
	return b
}

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
	var answer struct {
		Counts []windowCount
		Over   bool
		origin
	}
	if err := s.call(ctx, http.MethodPost, "/v1/add", nil, body, &answer); err != nil || s.json {
		return err
	}
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
				"`DURATION` in which twotier settle can correct what is counted, up to 24h")
			fs.StringVar(&body.OnExpiry, "on-expiry", "",
				"keep (the default) or release what a hold counted that nobody has settled")
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

// addCheck adds a check such as user:7:15/1m,50/24h. The key ends at the last colon, so it may
// contain colons.
func (b *writeBody) addCheck(text string) error {
	at := strings.LastIndexByte(text, ':')
	if at <= 0 {
		return fmt.Errorf("%q is not KEY:MAX/WINDOW,..., such as alice:15/1m,50/24h", text)
	}
	one := check{Key: text[:at], N: b.N}
	if err := addLimits(&one.Limits, text[at+1:]); err != nil {
		return err
	}
	b.Checks = append(b.Checks, one)
	return nil
}

// complete adds the key to the body of an acquire, or leaves it to the checks, and adds a limit on
// concurrent holds.
func (b *writeBody) complete(args []string, concurrent int64) (err error) {
	if err := checkAck(b.Ack); err != nil {
		return err
	}
	if len(b.Checks) == 0 {
		if b.Key, err = OneKey(args); err != nil {
			return err
		}
	} else if len(args)+len(b.Limits)+len(b.Rules) > 0 {
		return usagef("either KEY with --limit or --rule, or --check, not both")
	}
	switch {
	case b.Hold != "":
		if err := checkWindow(b.Hold); err != nil {
			return usagef("--hold: %w", err)
		}
	case b.OnExpiry != "":
		return usagef("--on-expiry: needs --hold, how long it can be settled")
	case concurrent > 0:
		return usagef("--concurrent: needs --hold, how long one may be open")
	}
	if concurrent < 0 {
		return usagef("--concurrent: %d is not a number of holds", concurrent)
	}
	var open []limit
	if concurrent > 0 {
		open = []limit{{Concurrent: concurrent}}
	}
	b.Limits = append(b.Limits, open...)
	for i := range b.Checks {
		b.Checks[i].NS, b.Checks[i].Limits = b.NS, append(b.Checks[i].Limits, open...)
	}
	if len(b.Checks) > 0 {
		b.check = nil
	}
	return nil
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

// isCounted reports whether the events of the key were counted.
func (d decision) isCounted() bool { return d.TS != 0 }

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
	if err := s.call(ctx, http.MethodPost, "/v1/acquire", nil, body, &answer); err != nil {
		return err
	}
	if !s.json {
		decisions := answer.Checks
		if body.check != nil {
			answer.Key = body.Key
			decisions = []decision{answer.decision}
		}
		verdict := s.describeVerdict(answer.decision, body)
		if !answer.Allowed && slices.ContainsFunc(decisions, decision.isCounted) {
			verdict += "; the events were counted"
		}
		fmt.Fprintf(s.Stdout, "%s (%s)\n", verdict, answer.origin)
		if err := s.printDecisions(decisions); err != nil {
			return err
		}
		s.printNear(answer.Near)
		s.printBans(answer.Bans)
		if answer.Hold != "" {
			fmt.Fprint(s.Stdout, describeHold(answer.Hold, answer.Until))
		}
	}
	if !answer.Allowed {
		return ErrRefused
	}
	return nil
}

func (s *session) describeVerdict(d decision, asked *writeBody) string {
	switch {
	case d.Allowed:
		return s.paint(green, "allowed")
	case asked.exceedsOnlyTogether():
		return s.describeRefusal(d.RetryAfter,
			"checks of the same key are more than a limit together")
	}
	return s.describeRefusal(d.RetryAfter, "-n is more than a limit")
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
			time.UnixMilli(b.Until).UTC().Format(time.RFC3339), since)
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
				var answer struct{}
				err := s.call(ctx, http.MethodPost, "/v1/reset", nil, check{NS: *ns, Key: key},
					&answer)
				if err != nil || s.json {
					return err
				}
				return s.printf("forgot %s\n",
					strings.TrimPrefix(*ns+":"+quoteUnprintable(key), ":"))
			})
		},
	}
}
