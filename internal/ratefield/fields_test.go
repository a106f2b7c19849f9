package ratefield_test

import (
	"math"
	"regexp"
	"testing"

	"twotier.dev/twotier/internal/ratefield"
)

func TestFields(t *testing.T) {
	var f ratefield.Fields
	if f.Policy() != "" || f.State() != "" {
		t.Errorf("of no limits: %q and %q", f.Policy(), f.State())
	}
	f.Add(&ratefield.Limit{Name: "login/1m", Max: 3, Window: 60_000, Remaining: 2})
	f.Add(&ratefield.Limit{Name: `a"\é`, Max: 1, Window: 1_500, Remaining: -4, Wait: 1})
	f.Add(&ratefield.Limit{Name: "all", Max: 1e15, Window: 1000, Remaining: 1e15 - 1, Wait: -1})
	const policy = `"login/1m";q=3;w=60, "a___";q=1;w=2, "all";q=999999999999999;w=1`
	const state = `"login/1m";r=2, "a___";r=0;t=1, "all";r=999999999999999`
	if f.Policy() != policy || f.State() != state {
		t.Errorf("got  %s\n     %s\nwant %s\n     %s", f.Policy(), f.State(), policy, state)
	}
}

// list matches a List of Strings with Integers as parameters (RFC 9651, section 3.1).
var list = regexp.MustCompile(`^"[ !#-\[\]-~]*"(;[a-z]=[0-9]{1,15})+` +
	`(, "[ !#-\[\]-~]*"(;[a-z]=[0-9]{1,15})+)*$`)

// FuzzFields adds arbitrary limits: the values are Lists of RFC 9651.
func FuzzFields(f *testing.F) {
	f.Add("login", int64(3), int64(60_000), int64(2), int64(0))
	f.Add("\"\\\x00\xff", int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64),
		int64(math.MaxInt64))
	f.Add("", int64(math.MinInt64), int64(math.MinInt64), int64(math.MinInt64),
		int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, name string, most, window, remaining, wait int64) {
		var fields ratefield.Fields
		l := ratefield.Limit{Name: name, Max: most, Window: window, Remaining: remaining,
			Wait: wait}
		for range 2 {
			fields.Add(&l)
		}
		if !list.MatchString(fields.Policy()) || !list.MatchString(fields.State()) {
			t.Errorf("%+v: %s and %s", l, fields.Policy(), fields.State())
		}
	})
}
