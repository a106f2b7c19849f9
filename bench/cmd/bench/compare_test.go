package main

import (
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
)

// TestWorkIsThatOfTheDecisions checks that Redis counted exactly the commands that were sent.
func TestWorkIsThatOfTheDecisions(t *testing.T) {
	some, err := rival.Select(rival.All(), []string{"hash-lua", "redis-rate", "sentinel",
		"twotier-lib"})
	must.Succeed(t, err)
	o := Compare{Duration: 100 * time.Millisecond, Rate: 500, Workers: 8, Batch: 20}
	r := CompareResult{Batch: o.Batch, Rate: o.Rate}
	for _, rv := range some {
		for _, workload := range []string{"distinct", "diurnal"} {
			row := CompareRow{Name: rv.Name, Workload: workload, Rules: 2}
			must.Succeed(t, o.measure(t.Context(), rival.Env{}, rv, &row))
			t.Log(row.progress())
			r.Rows = append(r.Rows, row)
			scripts := row.Single.Usage.Redis.Scripts
			switch {
			case row.Single.Decisions == 0 || row.Single.Usage.Driver <= 0:
				t.Errorf("%+v", row.Single)
			case rv.Name == "hash-lua" && scripts != row.Single.Decisions:
				t.Errorf("%d scripts for %d decisions", scripts, row.Single.Decisions)
			case rv.Name == "redis-rate" && workload == "distinct" &&
				scripts < 2*row.Single.Decisions:
				t.Errorf("%d scripts for %d decisions by two rules", scripts, row.Single.Decisions)
			case rv.Name == "sentinel" && row.Memory.Redis != 0, rv.Name == "twotier-lib" &&
				row.Memory.Redis <= 0:
				t.Errorf("%+v", row.Memory)
			}
		}
	}
	f := File{Options: o, Result: r}
	page, err := f.Page("compare", templates())
	text := string(page)
	if err != nil || strings.Count(text, "| hash, last n |") != 2*3+1 ||
		strings.Contains(text, "%!") {
		t.Error(err, text)
	}
}
