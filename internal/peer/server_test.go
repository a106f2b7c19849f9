package peer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/simnet"
)

// TestQuestionsOfUsersDontHoldUpThoseOfNodes asks more slow requests of users than there are
// workers, and one request of a node.
func TestQuestionsOfUsersDontHoldUpThoseOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, simnet.Weather{}, "", "")
		p.fake.delay = 2 * time.Second
		var users sync.WaitGroup
		for range 50 {
			users.Go(func() {
				_ = p.client.Ask(t.Context(), p.to, &node.TopRequest{}, new(node.TopResponse))
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.client.Ask(ctx, p.to, &node.PingRequest{}, nil); err != nil {
			t.Error(err)
		}
		users.Wait()
		time.Sleep(p.fake.delay) // for requests with callers that have given up
	})
}

// TestRepliesAreForgotten repeats a message long after its reply, once another process has sent
// one: the message is not executed again, and its reply is not kept.
func TestRepliesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{seen: map[string]int{}}
		s := peer.NewServer(peer.ServerOptions{Self: "b-1", Node: f})
		task := []rpc.Task{adding("k")}
		replies := map[string]int{}
		for range 3 {
			for range 2 {
				reply, err := s.Handle(t.Context(), peer.Message("a-1", "b-1", 1, task))
				must.Succeed(t, err)
				replies[peer.Said(reply)]++
			}
			time.Sleep(10 * time.Minute)
			_, err := s.Handle(t.Context(), peer.Message("c-1", "b-1", 1, task))
			must.Succeed(t, err)
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

// TestRepliesKeptAreBounded has many processes send a message each: the replies to the first ones
// are forgotten, so their copies are refused, and none is executed again.
func TestRepliesKeptAreBounded(t *testing.T) {
	f := &fake{seen: map[string]int{}}
	s := peer.NewServer(peer.ServerOptions{Self: "b-1", Node: f, ReplyBytes: 8 << 10})
	tasks := []rpc.Task{adding("k", slices.Repeat([]twotier.Limit{{Window: 1}}, 64)...)}
	const processes = 100
	replies := [processes]string{}
	send := func(i int) string {
		reply, err := s.Handle(t.Context(), peer.Message(fmt.Sprint("a-", i), "b-1", 1, tasks))
		must.Succeed(t, err)
		return peer.Said(reply)
	}
	for i := range replies {
		replies[i] = send(i)
	}
	kept := 0
	for i := processes - 1; i >= 0; i-- {
		if again := send(i); again == replies[i] {
			kept += len(again) - 1
		} else if len(again) != 1 {
			t.Errorf("message %d: %q, then %q", i, replies[i], again)
		}
	}
	if kept == 0 || kept > 8<<10 {
		t.Errorf("%d bytes are kept, want some, and at most 8 KiB", kept)
	}
	if f.seen["k"] != processes {
		t.Errorf("counted %d of %d", f.seen["k"], processes)
	}
}

// TestWorkersGiveUpLargeBuffers sends a message of a mebibyte and a small one.
func TestWorkersGiveUpLargeBuffers(t *testing.T) {
	s := peer.NewServer(peer.ServerOptions{Self: "b-1", Node: yes{}})
	c := newClient(t, peer.ClientOptions{Self: "a-1", Transport: handler{s}})
	task := adding(strings.Repeat("k", 256))
	for count, kept := range map[int]bool{4096: false, 10: true} {
		n, err := c.Kept(server, slices.Repeat([]rpc.Task{task}, count))
		if err != nil || (n > 0) != kept {
			t.Errorf("%d tasks: %d bytes are kept, %v, want any: %v", count, n, err, kept)
		}
	}
}

// silentHost accepts messages and never answers, like a suspended process.
type silentHost struct{}

func (silentHost) Send(ctx context.Context, _ string, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestUsersDoNotWaitForTheSilent asks a silent node on behalf of users: the first request times
// out, later ones fail at once as unreachable.
func TestUsersDoNotWaitForTheSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, peer.ClientOptions{Self: "a-1", Transport: silentHost{}})
		ask := func() (time.Duration, error) {
			began := time.Now()
			err := c.Ask(t.Context(), server, &node.TopRequest{}, new(node.TopResponse))
			return time.Since(began), err
		}
		if took, err := ask(); err == nil {
			t.Errorf("an answer after %v", took)
		}
		if took, err := ask(); took > 0 || !errors.Is(err, rpc.ErrUnreachable) {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestPasses admits only senders with the secret, and only messages of the stated length.
func TestPasses(t *testing.T) {
	secret := []byte("what all nodes share")
	s := peer.NewServer(peer.ServerOptions{Self: "b-1", Secret: secret})
	good := passes(t, secret)
	first, second := good.Pass(1000), good.Pass(1000)
	if first == second || first == "" {
		t.Errorf("two passes are the same: %q", first)
	}
	for _, pass := range []string{first, second} {
		if err := s.Admit(pass, 1000); err != nil {
			t.Errorf("a node is not admitted: %v", err)
		}
	}
	for name, test := range map[string]struct {
		pass string
		size int
	}{
		"none":             {"", 1000},
		"another length":   {first, 1001},
		"no length":        {first, -1},
		"another secret":   {passes(t, []byte("what others share")).Pass(1000), 1000},
		"no secret":        {passes(t, nil).Pass(1000), 1000},
		"damaged":          {first[:len(first)-2] + "AA", 1000},
		"cut short":        {first[:10], 1000},
		"of no alphabet":   {"%" + first, 1000},
		"long":             {strings.Repeat("A", 10_000), 1000},
		"without a sender": {"Ag", 1000},
	} {
		if err := s.Admit(test.pass, test.size); err == nil {
			t.Errorf("%s: admitted", name)
		}
	}
	good.SetSecrets([][]byte{[]byte("what is to be shared next"), secret})
	if err := s.Admit(good.Pass(5), 5); err == nil {
		t.Error("admitted by a secret that is not known yet")
	}
	s.SetSecrets([][]byte{secret, []byte("what is to be shared next")})
	if err := s.Admit(good.Pass(5), 5); err != nil {
		t.Errorf("not admitted by the second secret: %v", err)
	}
	if err := peer.NewServer(peer.ServerOptions{Self: "b-1"}).Admit("", 1000); err != nil {
		t.Errorf("without a secret: %v", err)
	}
}

// passes returns a client that only makes passes.
func passes(t *testing.T, secret []byte) *peer.Client {
	return newClient(t, peer.ClientOptions{Self: "a-1", Secret: secret, Transport: silentHost{}})
}
