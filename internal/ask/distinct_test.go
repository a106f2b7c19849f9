package ask_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/testing/extended"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/syncer"
)

const minute = 60_000

// distinctOp is an operation about the values of a key alone.
type distinctOp struct {
	op      twotier.Op
	limits  []twotier.Limit
	rules   []*twotier.Rule
	windows []twotier.Limit
	add     [][]byte
}

// addTo adds the operation to a request.
func (o *distinctOp) addTo(r *ask.Request) *request.Failure {
	r.BeginOp()
	for _, l := range append(o.limits, o.windows...) {
		r.AddLimit(l, nil)
	}
	r.MoveWindows(len(o.limits))
	for _, rule := range o.rules {
		r.AddRule(rule)
	}
	r.AddValues(o.add)
	f := r.EndDistinct(&o.op, &twotier.Check{Key: []byte("k")}, 0)
	if f != nil {
		r.DropOp()
	}
	return f
}

// addDistinct adds a valid operation to a request.
func addDistinct(t *testing.T, r *ask.Request, op distinctOp) {
	t.Helper()
	if f := op.addTo(r); f != nil {
		t.Fatal(f)
	}
}

// newValues returns a counter in memory.
func newValues(t *testing.T) ask.Service {
	t.Helper()
	counter, err := syncer.New(syncer.Options{Now: func() int64 { return 1_700_000_000_000 },
		Placement: twotier.Placement{Partitions: 1}})
	must.Succeed(t, err)
	must.Succeed(t, counter.Open(t.Context()))
	t.Cleanup(func() { must.Succeed(t, counter.Close(context.Background())) })
	return extended.Service{Counter: counter}
}

// execute executes the operations of a request by a service.
func execute(t *testing.T, r *ask.Request, s ask.Service) []twotier.Result {
	t.Helper()
	r.Link()
	results := r.EmptyResults()
	s.DoAll(t.Context(), r.Ops, results)
	r.FailUnjudged()
	return results
}

func values(names ...string) (list [][]byte) {
	for _, name := range names {
		list = append(list, []byte(name))
	}
	return list
}

// TestLimitsAndShadow adds values under a limit and a rule in shadow. The one in shadow is compared
// with what the values would make, also if the other refuses.
func TestLimitsAndShadow(t *testing.T) {
	s := newValues(t)
	for i, step := range []struct {
		shadow int64 // its maximum
		add    [][]byte
		want   string
	}{
		{2, values("a", "b"), "true 0 [2 2 2] [false false false]"},
		{2, values("c"), "true 0 [3 3 3] [false true false]"},
		{3, values("c", "a"), "true 0 [3 3 3] [false false false]"},
		{3, values("d"), "false 60000 [3 3 3] [true true false]"},
		{4, values("d"), "false 60000 [3 3 3] [true false false]"},
		{4, values("d", "e"), "false 60000 [3 3 3] [true true false]"},
		{0, nil, "true 0 [3] [false]"},
	} {
		op := distinctOp{add: step.add, windows: []twotier.Limit{{Window: minute}}}
		if step.add != nil {
			op.limits = []twotier.Limit{{Window: minute, Max: 3}}
			op.rules = []*twotier.Rule{{Name: "shadow", State: twotier.RuleShadow,
				Distinct: []twotier.RuleLimit{{Window: minute / 2, Max: step.shadow}}}}
		}
		var r ask.Request
		addDistinct(t, &r, op)
		res := execute(t, &r, s)[0]
		judged := r.ValuesOf(0, 0, &res).Result
		var counts []int64
		var refused []bool
		for _, l := range judged.Limits {
			counts, refused = append(counts, l.Count), append(refused, l.Refused)
		}
		got := fmt.Sprint(res.Allowed, res.RetryAfter, counts, refused)
		if got = strings.ReplaceAll(got, "][", "] ["); got != step.want || res.Err != nil {
			t.Errorf("step %d: %s, %v; want %s", i, got, res.Err, step.want)
		}
	}
}

// TestErrorsNameTheFieldsOfDistinct has limits and windows that are too long or of a calendar,
// among good operations, which are executed.
func TestErrorsNameTheFieldsOfDistinct(t *testing.T) {
	s := newValues(t)
	const long = 1 << 50
	day := twotier.Limit{Period: &twotier.Period{}}
	short := twotier.Limit{Window: minute, Max: 1}
	for _, test := range []struct {
		op   distinctOp
		want string
	}{
		{distinctOp{limits: []twotier.Limit{short, {Window: long, Max: 1}}}, "limits[1].window: 1"},
		{distinctOp{limits: []twotier.Limit{short}, windows: []twotier.Limit{{Window: long}}},
			"window: 11"},
		{distinctOp{op: twotier.Op{TS: 5}, limits: []twotier.Limit{short}}, "ts: limits and rules"},
		{distinctOp{op: twotier.Op{Ack: twotier.AckDisk}}, "ack: "},
		{distinctOp{limits: []twotier.Limit{short, day}}, "limits[1].window: distinct values"},
		{distinctOp{windows: []twotier.Limit{short, day}}, "window: distinct values"},
	} {
		var r ask.Request
		good := distinctOp{add: values("a"), windows: []twotier.Limit{{Window: minute}}}
		addDistinct(t, &r, good)
		test.op.add = values("b")
		f := test.op.addTo(&r)
		addDistinct(t, &r, good)
		results := execute(t, &r, s)
		if f == nil {
			wrong := r.FailureOfOp(1, results[1].Err, false)
			f = &wrong
		}
		got := strings.TrimPrefix(f.Field+": "+f.Detail, ": ")
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%s, want %s", got, test.want)
		}
		last := &results[len(results)-1]
		if results[0].Err != nil || last.Err != nil || last.Values[0].Limits[0].Count != 1 {
			t.Errorf("%v, %v, %+v", results[0].Err, last.Err, last.Values)
		}
	}
	leases := func(r *ask.Request) *request.Failure {
		r.BeginOp()
		r.AddValues(values("a"))
		r.LimitLeases(1)
		return r.EndDistinct(&twotier.Op{}, &twotier.Check{Key: []byte("k")}, 0)
	}
	if f := leases(new(ask.Request)); f == nil || f.Field != "limits" {
		t.Errorf("a limit on leases: %v", f)
	}
}

// refusing is a service that refuses without a limit, as a counter does that must not decide about
// a key that it does not know.
type refusing struct{ ask.Service }

func (refusing) DoAll(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].RetryAfter = 1000
		res[i].AddCheck().Refused = true
		res[i].Values = []twotier.CheckResult{{Refused: true,
			Limits: make([]twotier.LimitResult, len(ops[i].Values[0].Limits))}}
	}
}

// TestUnknownValuesAreNotJudged has a counter that refuses what it must not decide.
func TestUnknownValuesAreNotJudged(t *testing.T) {
	r := ask.Request{Shadow: twotier.Shadow{twotier.DefaultNamespace: false}}
	limit := twotier.Limit{Window: minute, Max: 1}
	op := distinctOp{limits: []twotier.Limit{limit, limit}, add: values("a")}
	addDistinct(t, &r, op)
	if err := execute(t, &r, refusing{})[0].Err; !errors.Is(err, twotier.ErrUnavailable) {
		t.Error(err)
	}
}
