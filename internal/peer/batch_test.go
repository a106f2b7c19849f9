package peer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// recorder is a node that records the operations it receives, and answers at random.
type recorder struct {
	rnd     *rand.Rand
	ops     []syncer.Op
	answers []syncer.Result
}

func (f *recorder) Serve(_ context.Context, ops []syncer.Op, res []syncer.Result) {
	for i := range ops {
		f.ops = append(f.ops, copyOf(&ops[i]))
		f.answer(&ops[i], &res[i])
		var answer syncer.Result
		copyResult(&answer, &res[i])
		f.answers = append(f.answers, answer)
	}
}

func (f *recorder) ServeTasks(_ context.Context, tasks []rpc.Task, res []syncer.Result) {
	for i := range tasks {
		res[i].Err = fmt.Errorf("%w: verb %d", syncer.ErrUnavailable, tasks[i].Verb)
	}
}

func (*recorder) Answer(context.Context, any) (any, error) { return nil, nil }

// answer sets a random answer, which needs no details half of the time.
func (f *recorder) answer(op *syncer.Op, res *syncer.Result) {
	detail := f.rnd.IntN(2) == 0
	sources := []syncer.Source{syncer.SourceMemory, syncer.SourceRedis, syncer.SourceDegraded}
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
		c.Limits = []syncer.LimitResult{}
		if detail {
			c.Refused, c.RetryAfter = f.rnd.IntN(2) == 0, f.rnd.Int64N(3)-1
		}
		for _, l := range op.Checks[i].Limits {
			count := f.rnd.Int64N(1<<f.rnd.IntN(62)) - 5
			c.Limits = append(c.Limits, syncer.LimitResult{Window: l.Window, Max: l.Max,
				Count: count, Lo: count - f.rnd.Int64N(100), Hi: count + f.rnd.Int64N(1000),
				BucketMS: 1 << f.rnd.IntN(20), Refused: detail && f.rnd.IntN(2) == 0})
		}
	}
}

// copyOf returns a deep copy of an operation.
func copyOf(op *syncer.Op) syncer.Op {
	o := *op
	o.Checks = nil
	for _, c := range op.Checks {
		c.NS, c.Key = append([]byte{}, c.NS...), append([]byte{}, c.Key...)
		c.Limits = append([]syncer.Limit{}, c.Limits...)
		o.Checks = append(o.Checks, c)
	}
	return o
}

// copyResult sets a result to a deep copy of another one.
func copyResult(to, res *syncer.Result) {
	*to = *res
	to.Checks = nil
	for _, c := range res.Checks {
		c.Limits = append([]syncer.LimitResult{}, c.Limits...)
		to.Checks = append(to.Checks, c)
	}
}

// anyOp returns a random operation that often resembles others.
func anyOp(rnd *rand.Rand) syncer.Op {
	op := syncer.Op{Kind: syncer.Kind(rnd.IntN(3)), Ack: syncer.Ack(rnd.IntN(3) / 2)}
	if rnd.IntN(8) == 0 {
		op.TS = -rnd.Int64()
	}
	checks := 1
	if op.Kind == syncer.Acquire {
		checks, op.CountDenied = 1+rnd.IntN(3), rnd.IntN(8) == 0
	}
	for i := range checks {
		c := syncer.Check{NS: []byte([]string{"", "", "sms"}[rnd.IntN(3)]),
			Key: fmt.Append(nil, rnd.Uint64()>>rnd.IntN(64)), N: 1, Limits: []syncer.Limit{}}
		if rnd.IntN(8) == 0 {
			c.N = int64(rnd.Uint32()>>1) - 1<<30
		}
		for j := range rnd.IntN(3) {
			c.Limits = append(c.Limits,
				syncer.Limit{Window: int64(1000 * (i + j + 1)), Max: 1 << 40})
		}
		op.Checks = append(op.Checks, c)
	}
	return op
}

// anyBatch returns a batch with runs of operations that differ in their keys only.
func anyBatch(rnd *rand.Rand, size int) (ops []syncer.Op) {
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
		res := make([]syncer.Result, 100)
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
func compare(t *testing.T, f *recorder, ops []syncer.Op, at []int, res []syncer.Result) {
	t.Helper()
	if len(f.ops) != len(at) {
		t.Fatalf("%d operations arrived, want %d: %v", len(f.ops), len(at), res[at[0]].Err)
	}
	for k, i := range at {
		if want := copyOf(&ops[i]); !reflect.DeepEqual(f.ops[k], want) {
			t.Fatalf("operation %d of %d arrived as %+v, want %+v", k, len(at), f.ops[k], want)
		}
		var got syncer.Result
		copyResult(&got, &res[i])
		if !reflect.DeepEqual(got, f.answers[k]) {
			t.Fatalf("result %d of %d is %+v, want %+v", k, len(at), got, f.answers[k])
		}
	}
}
