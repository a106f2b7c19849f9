package bans_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/bans"
	"twotier.dev/twotier/internal/decisions"
)

// note adds a ban of a key to a log.
func note(l *bans.Log, key string, until int64, started bool) {
	l.Record(&decisions.Decision{Key: []byte(key), Ban: &twotier.BanResult{Rule: "r",
		Until: until, Started: started}})
}

// TestLogRemembersBansUntilTheyEnd counts started bans, too.
func TestLogRemembersBansUntilTheyEnd(t *testing.T) {
	now := int64(0)
	l := bans.New(func() int64 { return now })
	note(l, "a", 100, true)
	note(l, "b", 200, true)
	note(l, "b", 200, false)
	l.Record(&decisions.Decision{Key: []byte("c")})
	for _, test := range []struct {
		ns, rule   string
		limit, now int
		want       string
	}{
		{"", "", 9, 50, "[{default r b} {default r a}]"}, {"", "r", 1, 50, "[{default r b}]"},
		{"sms", "", 9, 50, "[]"}, {"default", "x", 9, 50, "[]"},
		{"default", "r", 9, 100, "[{default r b}]"}, {"", "", 9, 200, "[]"},
	} {
		now = int64(test.now)
		got := fmt.Sprint(l.List(test.ns, test.rule, test.limit))
		if got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(l)
	families, err := r.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "twotier_bans_total" ||
		families[0].GetMetric()[0].GetCounter().GetValue() != 2 {
		t.Errorf("metrics %v %v", families, err)
	}
}

// TestLogIsBounded even while no ban ends.
func TestLogIsBounded(t *testing.T) {
	l := bans.New(func() int64 { return 0 })
	for i := range 40_000 {
		note(l, fmt.Sprint(i), int64(1000+rand.IntN(1000)), true)
	}
	if n := len(l.List("", "", 1<<20)); n != 16<<10 {
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
