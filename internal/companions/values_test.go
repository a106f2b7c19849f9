package companions_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/companions"
)

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

// TestErrorsNameValueLimits names the limit on values.
func TestErrorsNameValueLimits(t *testing.T) {
	op := withValues()
	several := companions.Extend(op, 0)
	one := *op
	one.Checks, one.Rules, one.Values = op.Checks[:1], nil, op.Values[:1]
	one.Checks[0].Limits, one.Checks[0].N = nil, 0
	for want, err := range map[string]error{
		"checks[1].value_limits[1].window: long": several.OriginalError(
			&twotier.InvalidError{Check: 3, Limit: 1, Field: "window", Detail: "long"}),
		"value_limits[0].window: long": companions.Extend(&one, 0).OriginalError(
			&twotier.InvalidError{Check: -1, Limit: 0, Field: "window", Detail: "long"}),
	} {
		if err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
