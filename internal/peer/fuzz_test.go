package peer_test

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// strict is a node that checks that tasks and requests are valid.
type strict struct{ t *testing.T }

func (s strict) Serve(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		if n := len(ops[i].Checks); n == 0 || ops[i].Kind != twotier.Acquire && n != 1 {
			s.t.Fatalf("%+v", ops[i])
		}
	}
	s.read(ops, res)
}

func (s strict) ServeTasks(_ context.Context, tasks []rpc.Task, res []twotier.Result) {
	for i := range tasks {
		if tasks[i].Verb == rpc.VerbDo {
			s.t.Fatalf("%+v", tasks[i])
		}
	}
	s.read(opsOf(tasks), res)
}

// read reads all memory of some operations.
func (s strict) read(ops []twotier.Op, res []twotier.Result) {
	if len(ops) != len(res) {
		s.t.Fatalf("%d operations, %d results", len(ops), len(res))
	}
	for i := range ops {
		for _, c := range ops[i].Checks {
			if len(c.Key) == 0 || len(c.Key) > 256 || len(c.NS) > 64 {
				s.t.Fatalf("key %q in %q", c.Key, c.NS)
			}
			if c.IsValues() && (c.N != int64(len(c.Values)) || !slices.IsSorted(c.Values)) {
				s.t.Fatalf("values %v, n %d", c.Values, c.N)
			}
			for _, l := range c.Limits {
				if l.Period != nil && (l.Window != 0 || l.Longest() < 1) {
					s.t.Fatalf("limit %+v", l)
				}
			}
		}
		res[i].AddCheck()
	}
}

func (strict) Respond(context.Context, any) (any, error) { return nil, nil }

// FuzzHandle sends arbitrary messages to a server without a secret.
func FuzzHandle(f *testing.F) {
	monthly, err := twotier.ParsePeriod("month.14@Europe/Lisbon")
	if err != nil {
		f.Fatal(err)
	}
	limits := []twotier.Limit{{Window: 60_000, Max: 5}, {Max: 9, Period: monthly}}
	f.Add(peer.Message("a", "b", 1, []rpc.Task{
		{Op: twotier.Op{Kind: twotier.Add, TS: 7,
			Checks: []twotier.Check{{Key: []byte("k"), N: -3, Limits: limits}}}},
		{Verb: rpc.VerbReserve, Acquire: rpc.AcquireID{Coordinator: "h", Number: 3}, Decider: "d",
			Op: twotier.Op{Kind: twotier.Acquire,
				Checks: []twotier.Check{{NS: []byte("n"), Key: []byte("k"), N: 1, Limits: limits},
					{Key: []byte("l"), N: 1}}}},
		{Verb: rpc.VerbDecide, Acquire: rpc.AcquireID{Coordinator: "h", Number: 4}, Settled: 2,
			Op: twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("l"),
				N: 1}}}},
	}, []rpc.Task{{Verb: rpc.VerbConfirm, Acquire: rpc.AcquireID{Coordinator: "h", Number: 3}}}))
	f.Add(peer.Message("a", "b", 1, []rpc.Task{{Op: twotier.Op{Kind: twotier.Add,
		Checks: []twotier.Check{{Kind: twotier.ValuesCheck, NS: []byte("@values/n"), N: 2,
			Key: []byte("/k"), Values: []uint64{64, 1 << 63}, Limits: limits[:1]}}}}}))
	alike := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
		{Key: []byte("k"), N: 1, Limits: limits}, {NS: []byte("n"), Key: []byte("l"), N: 1}}}
	f.Add(peer.Batch("a", "b", 1, []twotier.Op{alike, alike, alike}))
	f.Add(peer.Message("a", "b", 1))
	f.Add([]byte{1, 1, 'a', 1, 'b', 0, 1, 1, 1, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := peer.NewServer(peer.ServerOptions{Self: "b", Node: strict{t}})
		_, _ = s.Handle(t.Context(), raw)
	})
}

// FuzzReply parses arbitrary bytes as a result and as the response to a claim.
func FuzzReply(f *testing.F) {
	claim := sample()
	f.Add([]byte(peer.Answered(claim, nil)))
	f.Add([]byte(peer.Answered(nil, &rpc.MovedError{To: ring.Member{ID: "x"}})))
	f.Add([]byte{0xe0, 4, 1, 1, 0, 2, 1, 0, 2, 2, 2, 2})
	f.Add([]byte{0x81, 2, 2, 2, 2})
	op := twotier.Op{Checks: []twotier.Check{{Key: []byte("k"),
		Limits: []twotier.Limit{{Window: 1, Max: 1}}}}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var res twotier.Result
		_ = peer.Reply(raw).Result(&op, &res)
		a, err := peer.Reply(raw).Claim()
		if err != nil {
			return
		}
		again, err := peer.Answered(a, nil).Claim()
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Fatalf("%+v, then %+v, %v", a, again, err)
		}
	})
}

// sample is a response that uses every field.
func sample() *ownership.ClaimResponse {
	buckets := []syncer.Bucket{{Stretch: leaparray.Moment(1_763_000_000_123), N: 5},
		{Stretch: leaparray.Stretch{Start: 1_762_999_200_000, Width: 900_000}, N: -7}}
	values := []syncer.Bucket{{Stretch: leaparray.ValueAt(3), N: 1_763_000_000_123},
		{Stretch: leaparray.ValueAt(1<<63 - 1), N: -1 << 48},
		{Stretch: leaparray.ValueAt(1 << 63), N: 1 << 48},
		{Stretch: leaparray.ValueAt(1<<64 - 1), N: 1}}
	return &ownership.ClaimResponse{Pages: []ownership.ClaimPage{
		{Partition: 17, State: ownership.NotHeld},
		{Partition: 1020, State: ownership.Given, Next: 99, Gift: 5, Handoff: &syncer.Handoff{
			Partition: 1020, Epoch: 1 << 50, Version: 12, Quieted: 3, LastChange: "4 w",
			MaybeSent: true, UnflushedAge: 1234 * time.Millisecond,
			Rounds: []*syncer.Round{{Writer: "w.1", Now: 1_763_000_000_456, Seq: 4,
				Nonce: 1 << 60, Acked: 3,
				Keys: []syncer.KeyRound{
					{NS: []byte("n"), Key: []byte("k"), Reset: true, TTL: 5000, Adds: buckets},
					{NS: []byte("n"), Key: []byte("l"), Forgotten: true, Renew: true},
					{NS: []byte("@values/n"), Key: []byte("/k"), TTL: 5000, Adds: values},
				}}},
			Keys: []syncer.KeyState{{NS: []byte("n"), Key: []byte("k"), Buckets: buckets},
				{NS: []byte("n"), Key: []byte("absent"), Cold: true},
				{NS: []byte("@values/n"), Key: []byte("/k"), Buckets: values}},
			Loans: []twotier.Loan{{NS: []byte("n"), Key: []byte("k"), Name: "loan", Number: 7,
				Ceiling: 1 << 40, Seen: 5, Until: 1_763_000_000_000}},
		}},
	}}
}

func TestClaimsComeBack(t *testing.T) {
	want := sample()
	got, err := peer.Answered(want, nil).Claim()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// TestClaimsWithStrangeBucketsAreRefused has buckets that no ladder has.
func TestClaimsWithStrangeBucketsAreRefused(t *testing.T) {
	for _, at := range []leaparray.Stretch{{}, {Start: -1, Width: 1}, {Start: 60, Width: 50},
		{Start: 1 << 54, Width: 1}, {Start: 0, Width: 1 << 54}, {Start: 60, Width: -2}} {
		claim := sample()
		claim.Pages[1].Handoff.Keys[0].Buckets = []syncer.Bucket{{Stretch: at, N: 1}}
		if got, err := peer.Answered(claim, nil).Claim(); err == nil {
			t.Errorf("%+v comes back in %+v", at, got)
		}
	}
}
