package main

import (
	"strings"
	"testing"
	"time"

	"twotier/bench/rival"
)

// What Redis says it did must be what was asked of it.
func TestWorkIsThatOfTheDecisions(t *testing.T) {
	some, err := rival.Select(all(), "hash-lua,redis-rate,sentinel,twotier-lib")
	if err != nil {
		t.Fatal(err)
	}
	o := options{duration: 100 * time.Millisecond, rate: 500, workers: 8, batch: 20}
	r := Result{Workers: o.workers, Batch: o.batch, Rate: o.rate}
	for _, rv := range some {
		for _, workload := range []string{"distinct", "diurnal"} {
			row, err := o.measure(t.Context(), &rival.Env{}, rv, workload)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(row.progress())
			r.Rows = append(r.Rows, *row)
			scripts := row.Single.Usage.Work.Scripts
			switch {
			case row.Single.Decisions == 0 || row.Open.Calls == 0 || row.Single.Usage.Driver <= 0:
				t.Errorf("%+v", row.Single)
			case rv.Name == "hash-lua" && scripts != row.Single.Decisions:
				t.Errorf("%d scripts for %d decisions", scripts, row.Single.Decisions)
			case rv.Name == "redis-rate" && workload == "distinct" && scripts < 2*row.Single.Decisions:
				t.Errorf("%d scripts for %d decisions by two rules", scripts, row.Single.Decisions)
			case rv.Name == "sentinel" && row.Memory.Redis != 0, rv.Name == "twotier-lib" && row.Memory.Redis <= 0:
				t.Errorf("%+v", row.Memory)
			}
		}
	}
	if text := r.markdown(); strings.Count(text, "| hash, last n |") != 2*3+1 || strings.Contains(text, "%!") {
		t.Error(text)
	}
}

func TestGubernatorComesBeforeTwotier(t *testing.T) {
	names := rival.Names(all())
	if !strings.HasPrefix(names[len(names)-1], "twotier") || !strings.Contains(strings.Join(names, " "), "gubernator-3 twotier") {
		t.Error(names)
	}
}
