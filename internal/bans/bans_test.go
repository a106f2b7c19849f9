package bans_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/bans"
)

// twoChecks returns an operation of which rule x judges both keys, and rule y the second.
func twoChecks() *twotier.Op {
	limits := []twotier.Limit{{Window: 1, Max: 2}}
	return &twotier.Op{Kind: twotier.Acquire, TS: 5, Checks: []twotier.Check{
		{Key: []byte("a"), N: 1, Limits: limits},
		{NS: []byte("sms"), Key: []byte("b"), N: 2, Limits: limits},
	}, Rules: []twotier.BanRule{{Check: 0, Rule: "x", Window: 10, From: 0, To: 1},
		{Check: 1, Rule: "x", Window: 10, To: 1}, {Check: 1, Rule: "y", Window: 20, To: 1}}}
}

// TestExtendAndFold adds bans to the checks, and removes their results again.
func TestExtendAndFold(t *testing.T) {
	op := twoChecks()
	x := bans.Extend(op)
	var got string
	for _, c := range x.Op.Checks {
		got += fmt.Sprintf("%s %s %d %d; ", c.NS, c.Key, c.N, c.Limits[0].Window)
	}
	const want = " a 1 1; @bans/default x/a 0 10; sms b 2 1; @bans/sms x/b 0 10; " +
		"@bans/sms y/b 0 20; "
	if got != want || x.Op.TS != 5 || x.Op.Rules != nil || len(op.Checks) != 2 {
		t.Errorf("extended to %s (%+v)", got, x.Op)
	}
	res := twotier.Result{RetryAfter: 70, Checks: []twotier.CheckResult{
		{TS: 1}, {}, {Refused: true, RetryAfter: 30, Limits: []twotier.LimitResult{{Count: 4}}},
		{Refused: true, RetryAfter: 70, TS: 9, Limits: []twotier.LimitResult{{Hi: 1070}}},
		{Refused: true, RetryAfter: 60, Limits: []twotier.LimitResult{{Hi: 1060}}},
	}}
	x.ReduceResult(&res)
	got = fmt.Sprintf("%+v %v", res.Bans, len(res.Checks))
	if want := "[{Check:1 Rule:x Until:1070 Started:true} {Check:1 Rule:y Until:1060 " +
		"Started:false}] 2"; got != want {
		t.Errorf("folded to %s", got)
	}
	if a, b := res.Checks[0], res.Checks[1]; a.TS != 1 || a.Refused || b.RetryAfter != 70 ||
		!b.Refused || b.Limits[0].Count != 4 || !res.BannedBy(1, "x") || res.BannedBy(0, "x") {
		t.Errorf("folded to %+v", res)
	}
}

// TestErrorsNameTheOriginalCheck leaves other errors as they are.
func TestErrorsNameTheOriginalCheck(t *testing.T) {
	invalid := func(check int) error { return &twotier.InvalidError{Check: check, Field: "window"} }
	x := bans.Extend(twoChecks())
	single := twoChecks()
	single.Checks, single.Rules = single.Checks[:1], single.Rules[:1]
	for _, test := range []struct {
		x         *bans.Extended
		err, want error
	}{
		{x, invalid(2), invalid(1)}, {x, invalid(0), invalid(0)}, {x, invalid(-1), invalid(-1)},
		{bans.Extend(single), invalid(0), invalid(-1)},
		{x, twotier.ErrUnavailable, twotier.ErrUnavailable},
	} {
		got := test.x.OriginalError(test.err)
		if errors.Is(test.want, twotier.ErrUnavailable) && errors.Is(got, twotier.ErrUnavailable) {
			continue
		}
		var a, b *twotier.InvalidError
		if !errors.As(got, &a) || !errors.As(test.want, &b) || *a != *b {
			t.Errorf("%+v: %+v, want %+v", test.err, got, test.want)
		}
	}
}

// note adds a ban of a key to a log.
func note(l *bans.Log, key string, until, now int64, started bool) {
	op := twotier.Op{Checks: []twotier.Check{{Key: []byte(key)}}}
	l.Record(&op, &twotier.Result{Bans: []twotier.BanResult{{Rule: "r", Until: until,
		Started: started}}}, now)
}

// TestLogRemembersBansUntilTheyEnd counts started bans, too.
func TestLogRemembersBansUntilTheyEnd(t *testing.T) {
	var l bans.Log
	note(&l, "a", 100, 0, true)
	note(&l, "b", 200, 0, true)
	note(&l, "b", 200, 50, false)
	l.Record(&twotier.Op{}, &twotier.Result{}, 0)
	for _, test := range []struct {
		ns, rule   string
		limit, now int
		want       string
	}{
		{"", "", 9, 50, "[{default r b} {default r a}]"}, {"", "r", 1, 50, "[{default r b}]"},
		{"sms", "", 9, 50, "[]"}, {"default", "x", 9, 50, "[]"},
		{"default", "r", 9, 100, "[{default r b}]"}, {"", "", 9, 200, "[]"},
	} {
		got := fmt.Sprint(l.List(test.ns, test.rule, test.limit, int64(test.now)))
		if got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(&l)
	families, err := r.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "twotier_bans_total" ||
		families[0].GetMetric()[0].GetCounter().GetValue() != 2 {
		t.Errorf("metrics %v %v", families, err)
	}
}

// TestLogIsBounded even while no ban ends.
func TestLogIsBounded(t *testing.T) {
	var l bans.Log
	for i := range 40_000 {
		note(&l, fmt.Sprint(i), int64(1000+rand.IntN(1000)), 0, true)
	}
	if n := len(l.List("", "", 1<<20, 0)); n != 16<<10 {
		t.Errorf("%d bans", n)
	}
}

// TestUnion keeps each ban once, and the first bans of each list.
func TestUnion(t *testing.T) {
	of := func(keys ...string) (list []twotier.Banned) {
		for _, k := range keys {
			list = append(list, twotier.Banned{Key: k})
		}
		return list
	}
	if got := fmt.Sprint(bans.Union(3, of("a", "b", "c"), nil, of("b", "d"))); got !=
		fmt.Sprint(of("a", "b", "d")) {
		t.Errorf("%s", got)
	}
}
