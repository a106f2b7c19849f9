package peer_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// strict is a node that checks that tasks and questions are valid.
type strict struct{ t *testing.T }

func (s strict) Serve(_ context.Context, tasks []rpc.Task, res []node.Result) {
	if len(tasks) != len(res) {
		s.t.Fatalf("%d tasks, %d results", len(tasks), len(res))
	}
	for i := range tasks {
		task := &tasks[i]
		if n := len(task.Op.Checks); task.Verb == rpc.VerbDo && task.Op.Kind != node.Acquire &&
			n != 1 {
			s.t.Fatalf("%+v", task)
		}
		for _, c := range task.Op.Checks {
			if len(c.Key) == 0 || len(c.Key) > 256 || len(c.NS) > 64 {
				s.t.Fatalf("key %q in %q", c.Key, c.NS)
			}
			for _, l := range c.Limits {
				_ = l.Window
			}
		}
		res[i].AddCheck()
	}
}

func (strict) Answer(context.Context, any) (any, error) { return nil, nil }

// FuzzHandle sends arbitrary messages to a server without a secret.
func FuzzHandle(f *testing.F) {
	limits := []node.Limit{{Window: 60_000, Max: 5}}
	f.Add(peer.Message("a", "b", 1, []rpc.Task{
		{Op: node.Op{Kind: node.Add, TS: 7,
			Checks: []node.Check{{Key: []byte("k"), N: -3, Limits: limits}}}},
		{Verb: rpc.VerbReserve, Reservation: "h", Coordinator: "d",
			Op: node.Op{Kind: node.Acquire,
				Checks: []node.Check{{NS: []byte("n"), Key: []byte("k"), N: 1, Limits: limits},
					{Key: []byte("l"), N: 1}}}},
	}, []rpc.Task{{Verb: rpc.VerbConfirm, Reservation: "h"}}))
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
	f.Add([]byte{0, 1, 2, 4, 1, 0, 2, 1, 0, 2, 2, 2, 2})
	task := rpc.Task{Op: node.Op{Checks: []node.Check{{Key: []byte("k"),
		Limits: []node.Limit{{Window: 1, Max: 1}}}}}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var res node.Result
		_ = peer.Reply(raw).Result(&task, &res)
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
	buckets := []syncer.Bucket{{Level: 0, Index: 1_763_000_000, N: 5}, {Level: 2, Index: 12, N: -7}}
	return &ownership.ClaimResponse{Pages: []ownership.ClaimPage{
		{Partition: 17, State: ownership.NotHeld},
		{Partition: 1020, State: ownership.Given, Next: 99, Handoff: &syncer.Handoff{
			Partition: 1020, Epoch: 1 << 50, Version: 12, LastChange: "4 w", EpochKnown: true,
			MaybeSent: true,
			Unflushed: 1234 * time.Millisecond,
			Rounds: []*syncer.Round{{Writer: "w.1", Seq: 4, Acked: 3, Keys: []syncer.KeyRound{
				{NS: []byte("n"), Key: []byte("k"), Reset: true, Load: true, TTL: 5000,
					Adds: buckets, Expired: buckets[:1]},
				{NS: []byte("n"), Key: []byte("l"), Forgotten: true},
			}}},
			Keys: []syncer.KeyState{{NS: []byte("n"), Key: []byte("k"), Buckets: buckets},
				{NS: []byte("n"), Key: []byte("absent")}},
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
