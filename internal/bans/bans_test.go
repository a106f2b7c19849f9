package bans_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/bans"
)

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
