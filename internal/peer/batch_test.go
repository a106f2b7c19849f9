package peer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/ring"
)

// recorder is a node that records the operations it receives, and answers at random.
type recorder struct {
	rnd     *rand.Rand
	ops     []twotier.Op
	answers []twotier.Result
}

func (f *recorder) Serve(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		f.ops = append(f.ops, copyOf(&ops[i]))
		f.answer(&ops[i], &res[i])
		var answer twotier.Result
		copyResult(&answer, &res[i])
		f.answers = append(f.answers, answer)
	}
}

func (f *recorder) ServeTasks(_ context.Context, tasks []rpc.Task, res []twotier.Result) {
	for i := range tasks {
		res[i].Err = fmt.Errorf("%w: verb %d", twotier.ErrUnavailable, tasks[i].Verb)
	}
}

func (*recorder) Respond(context.Context, any) (any, error) { return nil, nil }

// answer sets a random answer, which needs no details half of the time.
func (f *recorder) answer(op *twotier.Op, res *twotier.Result) {
	detail := f.rnd.IntN(2) == 0
	sources := []twotier.Source{twotier.SourceMemory, twotier.SourceRedis, twotier.SourceDegraded}
	res.Allowed, res.Degraded = f.rnd.IntN(2) == 0, f.rnd.IntN(4) == 0
	res.Source = sources[f.rnd.IntN(len(sources))]
	if f.rnd.IntN(2) == 0 {
		res.AgeMS = f.rnd.Int64N(1000)
	}
	if detail {
		res.RetryAfter = f.rnd.Int64N(100_000) - 1
	}
	for i := range op.Checks {
		c := res.AddCheck()
		c.Limits = []twotier.LimitResult{}
		if detail {
			c.Refused, c.RetryAfter = f.rnd.IntN(2) == 0, f.rnd.Int64N(3)-1
		}
		for _, l := range op.Checks[i].Limits {
			count := f.rnd.Int64N(1<<f.rnd.IntN(62)) - 5
			c.Limits = append(c.Limits, twotier.LimitResult{Window: l.Window, Max: l.Max,
				Period: l.Period, Count: count, Lo: count - f.rnd.Int64N(100),
				Hi:       count + f.rnd.Int64N(1000),
				BucketMS: 1 << f.rnd.IntN(20), Refused: detail && f.rnd.IntN(2) == 0})
			if last := &c.Limits[len(c.Limits)-1]; op.Checks[i].IsValues() {
				last.BucketMS, last.Error = 1, float64(f.rnd.IntN(2))*f.rnd.Float64()
			}
		}
	}
}

// copyOf returns a deep copy of an operation.
func copyOf(op *twotier.Op) twotier.Op {
	o := *op
	o.Checks = nil
	for _, c := range op.Checks {
		c.NS, c.Key = append([]byte{}, c.NS...), append([]byte{}, c.Key...)
		c.Limits = append([]twotier.Limit{}, c.Limits...)
		if c.IsValues() {
			c.Values = append([]uint64{}, c.Values...)
		}
		o.Checks = append(o.Checks, c)
	}
	return o
}

// copyResult sets a result to a deep copy of another one.
func copyResult(to, res *twotier.Result) {
	*to = *res
	to.Checks = nil
	for _, c := range res.Checks {
		c.Limits = append([]twotier.LimitResult{}, c.Limits...)
		to.Checks = append(to.Checks, c)
	}
}

// anyOp returns a random operation that often resembles others.
func anyOp(rnd *rand.Rand) twotier.Op {
	op := twotier.Op{Kind: twotier.Kind(rnd.IntN(3)), Ack: twotier.Ack(rnd.IntN(3) / 2)}
	if rnd.IntN(8) == 0 {
		op.TS = -rnd.Int64()
	}
	checks := 1
	if op.Kind == twotier.Acquire {
		checks, op.CountDenied, op.Charge = 1+rnd.IntN(3), rnd.IntN(8) == 0, rnd.IntN(8) == 0
	}
	for i := range checks {
		c := twotier.Check{NS: []byte([]string{"", "", "sms"}[rnd.IntN(3)]),
			Key: fmt.Append(nil, rnd.Uint64()>>rnd.IntN(64)), N: 1, Limits: []twotier.Limit{}}
		if rnd.IntN(8) == 0 {
			c.N = int64(rnd.Uint32()>>1) - 1<<30
		} else if rnd.IntN(4) == 0 {
			addValues(&c, rnd)
		}
		for j := range rnd.IntN(3) {
			l := twotier.Limit{Window: int64(1000 * (i + j + 1)), Max: 1 << 40}
			if rnd.IntN(4) == 0 {
				l.Window, l.Period = 0, anyPeriod(rnd)
			}
			c.Limits = append(c.Limits, l)
		}
		op.Checks = append(op.Checks, c)
	}
	return op
}

// addValues makes a check one of a few different values, or of none.
func addValues(c *twotier.Check, rnd *rand.Rand) {
	c.Kind, c.N, c.Values = twotier.ValuesCheck, int64(rnd.IntN(4)), []uint64{}
	for range c.N {
		c.Values = append(c.Values, leaparray.CleanHash(rnd.Uint64()>>rnd.IntN(64)))
	}
	slices.Sort(c.Values)
	c.Values = slices.Compact(c.Values)
	c.N = int64(len(c.Values))
}

// anyPeriod returns one of a few periods.
func anyPeriod(rnd *rand.Rand) *twotier.Period {
	texts := []string{"hour", "day@Asia/Shanghai", "month.14@Europe/Lisbon", "month"}
	p, err := twotier.ParsePeriod(texts[rnd.IntN(len(texts))])
	if err != nil {
		panic(err)
	}
	return p
}

// anyBatch returns a batch with runs of operations that differ in their keys only.
func anyBatch(rnd *rand.Rand, size int) (ops []twotier.Op) {
	op := anyOp(rnd)
	for range size {
		if rnd.IntN(4) == 0 {
			op = anyOp(rnd)
		}
		op = copyOf(&op)
		for i := range op.Checks {
			op.Checks[i].Key = fmt.Append(nil, rnd.Uint64())
		}
		ops = append(ops, op)
	}
	return ops
}

// TestBatchesComeBack forwards parts of random batches: the other node gets the same operations,
// and this one the same answers, in the same places.
func TestBatchesComeBack(t *testing.T) {
	for _, secret := range []string{"", "a secret of all nodes"} {
		rnd := rand.New(rand.NewPCG(7, uint64(len(secret))))
		f := &recorder{rnd: rnd}
		s := peer.NewServer(peer.ServerOptions{Self: "b-1", Secret: []byte(secret), Node: f})
		c, err := peer.NewClient(peer.ClientOptions{Self: "a-1", Secret: []byte(secret),
			Transport: handler{s}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		res := make([]twotier.Result, 100)
		for range 300 {
			ops := anyBatch(rnd, 1+rnd.IntN(len(res)))
			at := []int{}
			for i := range ops {
				if rnd.IntN(4) > 0 || i == 0 {
					at = append(at, i)
				}
			}
			f.ops, f.answers = nil, nil
			to := &ring.Member{ID: "b", Name: "b-1", Address: "b"}
			c.DoAll(ctx, []rpc.Group{{To: to, At: at}}, ops, res, func() {}, func(int) {})
			compare(t, f, ops, at, res)
		}
		cancel()
		_ = c.Close(context.Background())
	}
}

// compare checks the operations that arrived, and the results that came back.
func compare(t *testing.T, f *recorder, ops []twotier.Op, at []int, res []twotier.Result) {
	t.Helper()
	if len(f.ops) != len(at) {
		t.Fatalf("%d operations arrived, want %d: %v", len(f.ops), len(at), res[at[0]].Err)
	}
	for k, i := range at {
		if want := copyOf(&ops[i]); !reflect.DeepEqual(f.ops[k], want) {
			t.Fatalf("operation %d of %d arrived as %+v, want %+v", k, len(at), f.ops[k], want)
		}
		var got twotier.Result
		copyResult(&got, &res[i])
		if !reflect.DeepEqual(got, f.answers[k]) {
			t.Fatalf("result %d of %d is %+v, want %+v", k, len(at), got, f.answers[k])
		}
	}
}
