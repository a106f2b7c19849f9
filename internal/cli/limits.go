package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/fields"
)

// limit is one limit, as in a request.
type limit struct {
	Window string `json:"window"`
	Max    int64  `json:"max"`
	// Concurrent, if positive, limits how many holds are open, in place of the others.
	Concurrent int64 `json:"-"`
}

// MarshalJSON spells the limit as in a request.
func (l limit) MarshalJSON() ([]byte, error) {
	if l.Concurrent > 0 {
		return json.Marshal(map[string]int64{"concurrent": l.Concurrent})
	}
	type plain limit
	return json.Marshal(plain(l))
}

// limitsVar adds a flag with limits, which may be repeated.
func limitsVar(fs *pflag.FlagSet, to *[]limit, help string) {
	fs.Func("limit", help, func(text string) error { return addLimits(to, text) })
}

// addLimits adds limits such as 15/1m or 1m=15, separated by commas.
func addLimits(to *[]limit, text string) error {
	for part := range strings.SplitSeq(text, ",") {
		one, err := parseLimit(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*to = append(*to, one)
	}
	return nil
}

// rulesVar adds a flag with names of rules, separated by commas, which may be repeated.
func rulesVar(fs *pflag.FlagSet, to *[]string, help string) {
	fs.Func("rule", help, func(text string) error {
		*to = append(*to, strings.Split(text, ",")...)
		return nil
	})
}

func parseLimit(text string) (limit, error) {
	most, window, ok := strings.Cut(text, "/")
	if !ok {
		window, most, ok = strings.Cut(text, "=")
	}
	n, err := strconv.ParseInt(most, 10, 64)
	if !ok || err != nil || n < 0 {
		return limit{}, fmt.Errorf("%q is not MAX/WINDOW, such as 15/1m", text)
	}
	return limit{Window: window, Max: n}, checkLimitWindow(window)
}

// checkLimitWindow checks the window of a limit or of a count, which may be a calendar period.
func checkLimitWindow(text string) error {
	if text == "" || text[0] < 'a' {
		return checkWindow(text)
	}
	if _, err := twotier.ParsePeriod(text); err != nil {
		return fmt.Errorf("%q is not a window, such as 90s, 24h, day or month@Europe/Lisbon: %w",
			text, err)
	}
	return nil
}

// checkWindow checks a window that can't be a calendar period.
func checkWindow(text string) error {
	d, err := config.ParseDuration(text)
	switch {
	case err == nil && d > 0:
		return nil
	case errors.Is(err, config.ErrMonths) && text[0] < 'a':
		return err
	}
	const want = "is not a window, such as 90s, 1m, 24h or 1d12h"
	if _, err := twotier.ParsePeriod(text); err == nil {
		return fmt.Errorf("%q %s; calendar windows are for limits and counts of events", text, want)
	}
	return fmt.Errorf("%q %s", text, want)
}

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
