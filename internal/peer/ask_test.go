package peer_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/simnet"
)

// TestQuestionsOfUsersDontHoldUpThoseOfNodes asks more slow questions of users than there are
// lanes, and one question of a node.
func TestQuestionsOfUsersDontHoldUpThoseOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, simnet.Weather{}, "", "")
		p.fake.delay = 2 * time.Second
		var users sync.WaitGroup
		for range 50 {
			users.Go(func() {
				_ = p.client.Ask(t.Context(), p.to, &node.TopQuestion{}, new(node.TopAnswer))
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.client.Ask(ctx, p.to, &node.PingQuestion{}, nil); err != nil {
			t.Error(err)
		}
		users.Wait()
		time.Sleep(p.fake.delay) // for questions whose callers have given up
	})
}

// TestRepliesAreForgotten repeats a message long after its reply, when another process has been
// heard from: the message is not carried out again, and its reply is not kept.
func TestRepliesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{seen: map[string]int{}}
		s := peer.NewServer(peer.ServerOptions{Self: "b-1", Node: f})
		task := []rpc.Task{{Op: node.Op{Kind: node.Add,
			Checks: []node.Check{{Key: []byte("k"), N: 1}}}}}
		replies := map[string]int{}
		for range 3 {
			for range 2 {
				reply, err := s.Handle(t.Context(), peer.Message("a-1", "b-1", 1, task))
				if err != nil {
					t.Fatal(err)
				}
				replies[peer.Said(reply)]++
			}
			time.Sleep(10 * time.Minute)
			if _, err := s.Handle(t.Context(), peer.Message("c-1", "b-1", 1, task)); err != nil {
				t.Fatal(err)
			}
		}
		if f.seen["k"] != 2 || len(replies) != 2 {
			t.Errorf("two messages were carried out %d times, and one has the replies %v",
				f.seen["k"], replies)
		}
	})
}

// TestLongNamesAreRefused sends a stranger's message with a name that would be stored along with a
// key for it.
func TestLongNamesAreRefused(t *testing.T) {
	for _, secret := range []string{"", "a secret"} {
		s := peer.NewServer(peer.ServerOptions{Self: "b-1", Secret: []byte(secret),
			Node: &fake{seen: map[string]int{}}})
		if _, err := s.Handle(t.Context(),
			peer.Message(strings.Repeat("a", 1<<20), "b-1", 1)); err == nil {
			t.Errorf("secret %q: a name of a mebibyte is taken", secret)
		}
	}
}
