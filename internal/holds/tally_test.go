package holds_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"twotier.dev/twotier/internal/holds"
)

// TestTally adds up two nodes: one makes holds, and the other one settles some of them.
func TestTally(t *testing.T) {
	now := int64(1_000_000)
	maker := &holds.Tally{Now: func() int64 { return now }}
	settler := &holds.Tally{Now: func() int64 { return now }}
	for _, until := range []int64{now + 1500, now + 1500, now + 7_200_001} {
		maker.Move("sms", 0, until)
	}
	settler.Move("sms", now+1500, 0)
	check := func(n *holds.Tally, made, settled, expired, open string) {
		t.Helper()
		want := ""
		for name, v := range map[string]string{"made_total": made, "settled_total": settled,
			"expired": expired, "open": open} {
			want += "twotier_holds_" + name + `{ns="sms"} ` + v + "\n"
		}
		got := collect(t, n)
		for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
			if !strings.Contains(got, line+"\n") {
				t.Errorf("no %s in\n%s", line, got)
			}
		}
	}
	check(maker, "3", "0", "0", "3")
	check(settler, "0", "1", "0", "-1")
	now += 2000
	check(maker, "3", "0", "2", "1")
	check(settler, "0", "1", "-1", "0")
	now += 7_260_000
	check(maker, "3", "0", "3", "0")
}

// TestTallyForgetsWithoutAReader: the memory of a tally whose metrics nobody reads stays bounded.
func TestTallyForgetsWithoutAReader(t *testing.T) {
	now := int64(0)
	n := &holds.Tally{Now: func() int64 { return now }}
	for range 10 * holds.MaxSlots {
		now += 1000
		n.Move("sms", 0, now+500)
	}
	if slots := n.Slots("sms"); slots > holds.MaxSlots {
		t.Errorf("%d slots", slots)
	}
	now += 1000
	if text := collect(t, n); !strings.Contains(text, "expired{ns=\"sms\"} 81920\n") {
		t.Error(text)
	}
}

// collect returns the metrics of a tally.
func collect(t *testing.T, n *holds.Tally) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(n)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
