package peer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/ring"
)

// recorder is a node that records the operations it receives, and answers at random.
type recorder struct {
	yes
	rnd     *rand.Rand
	ops     []string
	answers []string
}

func (f *recorder) Serve(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		f.answer(&ops[i], &res[i])
		f.ops = append(f.ops, fmt.Sprintf("%+v", ops[i]))
		f.answers = append(f.answers, fmt.Sprintf("%+v", res[i]))
	}
}

func (f *recorder) ServeTasks(_ context.Context, tasks []rpc.Task, res []twotier.Result) {
	for i := range tasks {
		res[i].Err = fmt.Errorf("%w: verb %d", twotier.ErrUnavailable, tasks[i].Verb)
	}
}

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
			Key: fmt.Append(nil, rnd.Uint64()>>rnd.IntN(64)), N: 1}
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
	c.Kind, c.N = twotier.ValuesCheck, int64(rnd.IntN(4))
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
		op.Checks = slices.Clone(op.Checks)
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
		c := newClient(t, peer.ClientOptions{Self: "a-1", Secret: []byte(secret),
			Transport: handler{s}})
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
			c.DoAll(ctx, []rpc.Group{{To: server, At: at}}, ops, res, func() {}, func(int) {})
			compare(t, f, ops, at, res)
		}
		cancel()
	}
}

// compare checks the operations that arrived, and the results that came back.
func compare(t *testing.T, f *recorder, ops []twotier.Op, at []int, res []twotier.Result) {
	t.Helper()
	if len(f.ops) != len(at) {
		t.Fatalf("%d operations arrived, want %d: %v", len(f.ops), len(at), res[at[0]].Err)
	}
	for k, i := range at {
		if want := fmt.Sprintf("%+v", ops[i]); f.ops[k] != want {
			t.Fatalf("operation %d of %d arrived as %s, want %s", k, len(at), f.ops[k], want)
		}
		if got := fmt.Sprintf("%+v", res[i]); got != f.answers[k] {
			t.Fatalf("result %d of %d is %s, want %s", k, len(at), got, f.answers[k])
		}
	}
}

// distant is a transport to several servers by address, each with a delay before it answers.
type distant map[string]struct {
	server *peer.Server
	delay  time.Duration
}

func (d distant) Send(ctx context.Context, address string, message []byte) ([]byte, error) {
	to := d[address]
	if to.server == nil {
		return nil, rpc.ErrUnreachable
	}
	select {
	case <-time.After(to.delay):
		return to.server.Handle(ctx, message)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestGroupsDoNotWaitForEachOther forwards groups of one batch to a node that answers soon, one
// that answers late, one that never does and one that is gone: each group is over as soon as it can
// be, and the work done meanwhile comes before the first.
func TestGroupsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := distant{}
		for name, delay := range map[string]time.Duration{"soon": time.Millisecond,
			"late": 100 * time.Millisecond, "never": time.Hour} {
			at := d[name]
			at.delay = delay
			at.server = peer.NewServer(peer.ServerOptions{Self: name, Node: yes{}})
			d[name] = at
		}
		c := newClient(t, peer.ClientOptions{Self: "a", Transport: d})
		names := []string{"never", "late", "gone", "soon"}
		groups := make([]rpc.Group, len(names))
		for i, name := range names {
			groups[i].To = &ring.Member{ID: name, Name: name, Address: name}
		}
		ops, res := make([]twotier.Op, 40), make([]twotier.Result, 40)
		for i := range ops {
			ops[i].Checks = []twotier.Check{{Key: fmt.Append(nil, i), N: 1}}
			g := &groups[i%len(groups)]
			g.At = append(g.At, i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var order []string
		c.DoAll(ctx, groups, ops, res,
			func() { order = append(order, "meanwhile") },
			func(i int) { order = append(order, names[i]) })
		if want := []string{"meanwhile", "gone", "soon", "late", "never"}; !slices.Equal(order,
			want) {
			t.Errorf("over in the order %v, want %v", order, want)
		}
		for i, name := range names {
			for _, at := range groups[i].At {
				err, answered := res[at].Err, name == "soon" || name == "late"
				if (err == nil) != answered || res[at].Allowed != answered ||
					errors.Is(err, rpc.ErrUnreachable) != (name == "gone") {
					t.Errorf("%s: %v, allowed %v", name, err, res[at].Allowed)
				}
			}
		}
	})
}

// observer keeps the limits of the operations that a server receives.
type observer struct {
	strict
	limits *[][]twotier.Limit
}

func (o observer) Serve(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		*o.limits = append(*o.limits, slices.Clone(ops[i].Checks[0].Limits))
		res[i].AddCheck()
	}
}

// TestUnknownPeriodsFailAlone receives a period in a time zone that this node does not have. Its
// operation is refused, and the others of the message are executed.
func TestUnknownPeriodsFailAlone(t *testing.T) {
	monthly, err := twotier.ParsePeriod("month.14@Europe/Lisbon")
	must.Succeed(t, err)
	ops := []twotier.Op{
		{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("k"), N: 1,
			Limits: []twotier.Limit{{Max: 9, Period: monthly}}}}},
		{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("l"), N: 1,
			Limits: []twotier.Limit{{Max: 5, Window: 1000}, {Max: 9, Period: monthly}}}}},
	}
	for _, zone := range []string{"Europe/Lisbon", "Europe/Nowhere"[:13]} {
		var got [][]twotier.Limit
		s := peer.NewServer(peer.ServerOptions{Self: "b", Node: observer{strict{t: t}, &got}})
		raw := bytes.Replace(peer.Batch("a", "b", 1, ops), []byte("Europe/Lisbon"), []byte(zone), 1)
		if _, err := s.Handle(t.Context(), raw); err != nil || len(got) != 2 ||
			!slices.Equal(got[1], ops[1].Checks[0].Limits) {
			t.Fatalf("%s: %+v, %v", zone, got, err)
		}
		op := twotier.Op{Checks: []twotier.Check{{Key: []byte("k"), N: 1, Limits: got[0]}}}
		ladder, err := leaparray.NewLadder(0, leaparray.Level{Width: 3_600_000_000_000, Count: 768})
		must.Succeed(t, err)
		_, err = twotier.Validate(&op, func([]byte) *leaparray.Ladder { return ladder }, 1)
		invalid, refused := errors.AsType[*twotier.InvalidError](err)
		if known := zone == "Europe/Lisbon"; known != (err == nil) ||
			refused && invalid.Field != "window" {
			t.Errorf("%s: %v", zone, err)
		}
	}
}

// yes is a node that allows everything at once.
type yes struct{}

func (yes) Serve(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Allowed, res[i].Source = true, twotier.SourceMemory
		c := res[i].AddCheck()
		for range ops[i].Checks[0].Limits {
			c.Limits = append(c.Limits, twotier.LimitResult{Count: 1, Lo: 1, Hi: 1, BucketMS: 1000})
		}
	}
}

func (yes) ServeTasks(context.Context, []rpc.Task, []twotier.Result) {}

func (yes) Respond(context.Context, any) (any, error) { return nil, nil }

// handler is a transport to a server in the same process.
type handler struct{ s *peer.Server }

func (h handler) Send(ctx context.Context, _ string, message []byte) ([]byte, error) {
	return h.s.Handle(ctx, message)
}

// BenchmarkForward forwards an operation with one limit to a node in this process that does
// nothing, sealed as between machines: it measures the work of this package.
func BenchmarkForward(b *testing.B) {
	secret := []byte("a secret of all nodes")
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			s := peer.NewServer(peer.ServerOptions{Self: "b-1", Secret: secret, Node: yes{}})
			c := newClient(b, peer.ClientOptions{Self: "a-1", Secret: secret,
				Transport: handler{s}})
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			b.SetParallelism(callers)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				tasks := []rpc.Task{adding("user:42", twotier.Limit{Window: 60_000, Max: 5})}
				res := make([]twotier.Result, 1)
				for pb.Next() {
					if c.Do(ctx, server, tasks, res); res[0].Err != nil {
						b.Error(res[0].Err)
					}
				}
			})
			b.StopTimer()
			stats := c.Stats()
			b.ReportMetric(float64(stats.TasksTotal)/float64(stats.MessagesTotal), "tasks/message")
		})
	}
}
