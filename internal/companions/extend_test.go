package companions_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/companions"
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
	x := companions.Extend(op, 0)
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

// TestDryRunOfLeases reduces the result of a dry run, which is allowed: it has the lease that it
// would take among the open ones, so no limit refuses that is as high.
func TestDryRunOfLeases(t *testing.T) {
	op := &twotier.Op{Kind: twotier.Acquire, DryRun: true, Checks: twoChecks().Checks[:1],
		Leases: []twotier.Lease{{Max: 2}, {Max: 1, Shadow: true}}}
	res := twotier.Result{Allowed: true, Checks: []twotier.CheckResult{{},
		{Limits: []twotier.LimitResult{{Count: 2, Max: 2}}}}}
	companions.Extend(op, 0).ReduceResult(&res)
	if l := res.Leases; len(l) != 2 || l[0].Refused || !l[1].Refused || l[0].Open != 2 {
		t.Errorf("reduced to %+v", l)
	}
}

// TestOpenOp reads the open leases of a result, whether another one would be allowed or not.
func TestOpenOp(t *testing.T) {
	op := companions.OpenOp([]byte("sms"), []byte("k"), 3, 900)
	c := &op.Checks[0]
	if !op.Reads() || !c.IsLease() || string(c.NS) != "@leases/sms" || string(c.Key) != "/k" ||
		c.Until != 900 || c.Limits[0].Max != 3 {
		t.Errorf("%+v", op)
	}
	res := twotier.Result{Checks: []twotier.CheckResult{{
		Limits: []twotier.LimitResult{{Count: 3}}}}}
	refused := companions.OpenOf(&res)
	res.Allowed = true
	allowed := companions.OpenOf(&res)
	if short := companions.OpenOf(&twotier.Result{}); refused != 3 || allowed != 2 || short != 0 {
		t.Errorf("%d, %d and %d", refused, allowed, short)
	}
}

// TestLeases adds the leases of two checks, and reduces their results: one refuses, and one in
// shadow would have refused.
func TestLeases(t *testing.T) {
	op := twoChecks()
	op.Rules, op.Until = op.Rules[:1], 900
	op.Leases = []twotier.Lease{{Check: 0, Max: 9, Rule: "x"}, {Check: 0, Max: 2},
		{Check: 1, Max: 3, Shadow: true}}
	x := companions.Extend(op, 0)
	got := ""
	for _, c := range x.Op.Checks {
		got += fmt.Sprintf("%s %s %d %d %d; ", c.NS, c.Key, c.N, c.Until, c.Limits[0].Max)
	}
	const want = " a 1 0 2; @bans/default x/a 0 0 0; @leases/default /a 1 900 2; sms b 2 0 2; " +
		"@leases/sms /b 1 900 9007199254740992; "
	if got != want || !companions.Needs(op) || companions.Needs(&twotier.Op{}) {
		t.Errorf("extended to %s", got)
	}
	res := twotier.Result{RetryAfter: 70, Checks: []twotier.CheckResult{{}, {},
		{Refused: true, RetryAfter: 70, Limits: []twotier.LimitResult{{Count: 2, Max: 2}}}, {},
		{Limits: []twotier.LimitResult{{Count: 3}}}}}
	x.ReduceResult(&res)
	got = fmt.Sprintf("%+v", res.Leases)
	if want := "[{Lease:{Check:0 Max:9 Rule:x Shadow:false} Open:2 Refused:false} " +
		"{Lease:{Check:0 Max:2 Rule: Shadow:false} Open:2 Refused:true} " +
		"{Lease:{Check:1 Max:3 Rule: Shadow:true} Open:3 Refused:true}]"; got != want {
		t.Errorf("reduced to %s", got)
	}
	if len(res.Checks) != 2 || !res.Checks[0].Refused || res.Checks[0].RetryAfter != 70 ||
		res.Checks[1].Refused {
		t.Errorf("reduced to %+v", res.Checks)
	}
}

// withValues returns an operation whose first check has a ban and values, whose second has only
// values, with a limit in shadow, and whose third has only events.
func withValues() *twotier.Op {
	op := twoChecks()
	op.Rules = op.Rules[:1]
	op.Checks = append(op.Checks, twotier.Check{Key: []byte("c"), N: 1})
	op.Checks[1].N, op.Checks[1].Limits = 0, nil
	op.Values = []twotier.ValuesOf{
		{Check: 0, Values: [][]byte{[]byte("x"), []byte("y"), []byte("x")},
			Limits: []twotier.Limit{{Window: 60, Max: 5}}},
		{Check: 1, Values: [][]byte{[]byte("x")}, Shadow: []int{1},
			Limits: []twotier.Limit{{Window: 60, Max: 2}, {Window: 70, Max: 1}}}}
	return op
}

// TestValues adds values to checks, and moves their results.
func TestValues(t *testing.T) {
	op := withValues()
	x := companions.Extend(op, 7)
	var got string
	for _, c := range x.Op.Checks {
		got += fmt.Sprintf("%s %s %d", c.NS, c.Key, c.N)
		for _, l := range c.Limits {
			got += fmt.Sprint(" ", l.Window, "/", l.Max)
		}
		got += "; "
	}
	want := fmt.Sprint(" a 1 1/2; @bans/default x/a 0 10/0; @values/default /a 2 60/5; "+
		"@values/sms /b 1 60/2 70/", twotier.MaxBound, ";  c 1; ")
	if got != want || !companions.Needs(&twotier.Op{Values: op.Values}) || x.Op.Values != nil {
		t.Errorf("extended to %s\nwant %s", got, want)
	}
	hashes := []uint64{companions.HashValue(7, []byte("x")), companions.HashValue(7, []byte("y"))}
	slices.Sort(hashes)
	if !slices.Equal(x.Op.Checks[2].Values, hashes) {
		t.Errorf("%v, want %v", x.Op.Checks[2].Values, hashes)
	}
	res := twotier.Result{RetryAfter: 9, Checks: []twotier.CheckResult{{TS: 5}, {},
		{Limits: []twotier.LimitResult{{Count: 2, Max: 5}}},
		{Refused: true, RetryAfter: 9, Limits: []twotier.LimitResult{{Count: 3, Max: 2,
			Refused: true}, {Count: 1, Max: twotier.MaxBound}}}, {TS: 6}}}
	x.ReduceResult(&res)
	if c := res.Checks; len(c) != 3 || c[0].TS != 5 || c[0].Refused || !c[1].Refused ||
		c[1].RetryAfter != 9 || len(c[1].Limits) != 0 || c[2].TS != 6 {
		t.Errorf("reduced to %+v", c)
	}
	var tried *twotier.Op
	x.TryShadow(t.Context(), func(_ context.Context, op *twotier.Op, res *twotier.Result) error {
		tried = op
		res.Checks = []twotier.CheckResult{{Limits: []twotier.LimitResult{{Refused: true}}}}
		return nil
	}, &res)
	if !tried.DryRun || len(tried.Checks) != 1 || len(tried.Checks[0].Limits) != 1 ||
		tried.Checks[0].Limits[0] != op.Values[1].Limits[1] {
		t.Errorf("tried %+v", tried)
	}
	if v := res.Values; len(v) != 2 || v[0].Refused || v[0].Limits[0].Count != 2 ||
		!v[1].Limits[0].Refused || !v[1].Limits[1].Refused || v[1].Limits[1].Max != 1 {
		t.Errorf("values %+v", v)
	}
}

// TestRefusedByBoth keeps the longest wait of a check whose events and values are refused.
func TestRefusedByBoth(t *testing.T) {
	for _, wait := range []struct{ events, values, want int64 }{{5, 9, 9}, {9, 5, 9}, {5, -1, -1}} {
		op := withValues()
		op.Checks, op.Rules, op.Values = op.Checks[:1], nil, op.Values[:1]
		res := twotier.Result{Checks: []twotier.CheckResult{
			{Refused: true, RetryAfter: wait.events}, {Refused: true, RetryAfter: wait.values}}}
		companions.Extend(op, 0).ReduceResult(&res)
		if len(res.Checks) != 1 || res.Checks[0].RetryAfter != wait.want {
			t.Errorf("%+v: %+v", wait, res.Checks)
		}
	}
}

// TestErrorsNameTheOriginalCheck names checks and limits on values as the request has them, and
// leaves other errors as they are.
func TestErrorsNameTheOriginalCheck(t *testing.T) {
	invalid := func(check, limit int) error {
		return &twotier.InvalidError{Check: check, Limit: limit, Field: "window", Detail: "long"}
	}
	rules, values := companions.Extend(twoChecks(), 0), companions.Extend(withValues(), 0)
	one, alone := twoChecks(), withValues()
	one.Checks, one.Rules = one.Checks[:1], one.Rules[:1]
	alone.Checks, alone.Rules, alone.Values = alone.Checks[:1], nil, alone.Values[:1]
	alone.Checks[0].Limits, alone.Checks[0].N = nil, 0
	for _, test := range []struct {
		x    *companions.Extended
		err  error
		want string
	}{
		{rules, invalid(2, -1), "checks[1].window: long"},
		{rules, invalid(0, -1), "checks[0].window: long"},
		{rules, invalid(-1, -1), "window: long"},
		{companions.Extend(one, 0), invalid(0, -1), "window: long"},
		{rules, twotier.ErrUnavailable, "unavailable"},
		{rules, &twotier.InvalidError{Check: 1, Field: "hold"},
			"unavailable: the hold ended before the owner of a key could count it"},
		{values, invalid(3, 1), "checks[1].value_limits[1].window: long"},
		{companions.Extend(alone, 0), invalid(-1, 0), "value_limits[0].window: long"},
	} {
		if got := test.x.OriginalError(test.err); got.Error() != test.want {
			t.Errorf("%+v: %v, want %s", test.err, got, test.want)
		}
	}
}

// TestHash: hashes depend on the seed, and none stands for a class of values.
func TestHash(t *testing.T) {
	var all []uint64
	for i := range 1000 {
		all = append(all, companions.HashValue(uint64(i%2), fmt.Append(nil, i/2)))
	}
	slices.Sort(all)
	if all[0] < 64 || len(slices.Compact(all)) != 1000 {
		t.Errorf("%d different ones, the lowest is %d", len(slices.Compact(all)), all[0])
	}
}
