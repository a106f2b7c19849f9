package peer_test

import (
	"context"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// TestHead reads every head that there could be: a node accepts those that it would write, with a
// bit for each boolean, and refuses bits that it does not know.
func TestHead(t *testing.T) {
	known, want := uint16(0), uint16(0x732f) // of the verb, the time, the kind and the ack
	for f := range fields.Booleans.All() {
		want |= f.Bit()
	}
	for head := range 1 << 16 {
		op, again, ok := peer.ReadHead(uint16(head))
		if ok && again != uint16(head) {
			t.Fatalf("%016b is read as %+v, which is written as %016b", head, op, again)
		}
		for f := range fields.Booleans.All() {
			if ok && *f.Value(&op) != (uint16(head)&f.Bit() != 0) {
				t.Fatalf("%016b: %s is %v", head, f.Name(), *f.Value(&op))
			}
		}
		if ok {
			known |= uint16(head)
		}
	}
	if known != want {
		t.Errorf("the known bits are %016b, want %016b", known, want)
	}
	op := twotier.Op{Kind: twotier.Acquire, Ack: twotier.AckStore, Charge: true, DryRun: true,
		CountDenied: true}
	if head := peer.Head(&op); head != 0x2a90 {
		t.Errorf("%#x; nodes of the previous version write 0x2a90", head)
	}
}

// answers lists an empty answer for each kind of request, by name; nil if it has none.
var answers = map[string]any{
	"ping": nil, "holdings": &ownership.HoldingsResponse{}, "claim": &ownership.ClaimResponse{},
	"offer": nil, "return": nil, "outcome": &multiowner.OutcomeResponse{},
	"top": &node.TopResponse{}, "series": &node.SeriesResponse{}, "mode": nil,
	"lease":  &hotkeys.LeaseResponse{},
	"status": &cluster.Status{}, "settle": nil, "top refused": &node.TopResponse{},
	"top refused in shadow": &node.TopResponse{}, "top leases": &node.TopResponse{},
	"bans": &node.BansResponse{}, "events": &cluster.Events{},
	"replay": &node.ReplayResponse{}, "recall": nil,
	"refusals": &node.RefusalsResponse{}, "sample": &node.SampleResponse{},
}

// TestEveryQuestionComesBack encodes and parses requests of each kind and their answers, with
// random fields.
func TestEveryQuestionComesBack(t *testing.T) {
	names, rnd := map[string]bool{}, rand.New(rand.NewSource(1))
	for code := range 256 {
		kind, ok := node.KindByCode(byte(code))
		if !ok {
			continue
		}
		names[kind.Name] = true
		empty, known := answers[kind.Name]
		if !known {
			t.Errorf("%s: say above what is answered", kind.Name)
			continue
		}
		for range 50 {
			want := anything(t, kind.New(), rnd)
			got, err := peer.Asked(want)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v became %+v, %v", kind.Name, want, got, err)
			}
			if kind.Name == "claim" {
				break // see TestClaimsComeBack
			}
			comesBack(t, kind.Name, empty, rnd)
		}
	}
	if len(names) != len(answers) {
		t.Errorf("%d kinds of request, %d of answer", len(names), len(answers))
	}
}

// comesBack encodes a random answer of the same type and parses it.
func comesBack(t *testing.T, name string, empty any, rnd *rand.Rand) {
	t.Helper()
	if empty == nil {
		if err := peer.Answered(nil, nil).Into(nil); err != nil {
			t.Fatalf("%s: no answer: %v", name, err)
		}
		return
	}
	want := anything(t, empty, rnd)
	got := reflect.New(reflect.TypeOf(empty).Elem()).Interface()
	if err := peer.Answered(want, nil).Into(got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: the answer %+v became %+v, %v", name, want, got, err)
	}
}

// anything returns a random value of the pointer's element type.
func anything(t *testing.T, like any, rnd *rand.Rand) any {
	t.Helper()
	p := reflect.New(reflect.TypeOf(like).Elem())
	fill(t, p.Elem(), rnd)
	return p.Interface()
}

// fill sets a value to a random one. Of limits it draws some with a period, which no reflection can
// make.
func fill(t *testing.T, v reflect.Value, rnd *rand.Rand) {
	t.Helper()
	limit, isLimit := v.Addr().Interface().(*twotier.Limit)
	switch {
	case isLimit && rnd.Intn(2) == 0:
		period, err := twotier.ParsePeriod([]string{"hour", "month.14@Europe/Lisbon"}[rnd.Intn(2)])
		must.Succeed(t, err)
		*limit = twotier.Limit{Max: rnd.Int63(), Period: period}
	case isLimit:
		*limit = twotier.Limit{Window: rnd.Int63(), Max: rnd.Int63()}
	case v.Kind() == reflect.Struct && v.Type().PkgPath() != "time":
		for i := range v.NumField() {
			fill(t, v.Field(i), rnd)
		}
	case v.Kind() == reflect.Slice: // not empty: encodings need not distinguish that from nil
		v.Set(reflect.MakeSlice(v.Type(), 1+rnd.Intn(3), 4))
		for i := range v.Len() {
			fill(t, v.Index(i), rnd)
		}
	default:
		drawn, ok := quick.Value(v.Type(), rnd)
		if !ok {
			t.Fatalf("no value of type %v", v.Type())
		}
		v.Set(drawn)
	}
}

// strict is a node that checks that tasks and requests are valid.
type strict struct {
	yes
	t *testing.T
}

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

// FuzzHandle sends arbitrary messages to a server without a secret.
func FuzzHandle(f *testing.F) {
	monthly, err := twotier.ParsePeriod("month.14@Europe/Lisbon")
	must.Succeed(f, err)
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
		s := peer.NewServer(peer.ServerOptions{Self: "b", Node: strict{t: t}})
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
