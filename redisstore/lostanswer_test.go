package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// onScripts calls answer for every script that a client sends to a node, unless the node does not
// have the script yet. run carries the script out without answering it. If answer returns false,
// the node answers by itself.
func onScripts(t testing.TB, node *miniredis.Miniredis,
	answer func(c *server.Peer, args []string, run func()) bool) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: node.Addr(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	var busy atomic.Bool // scripts that arrive meanwhile are the client's
	node.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if !strings.HasPrefix(cmd, "EVAL") || !busy.CompareAndSwap(false, true) {
			return false
		}
		defer busy.Store(false)
		ctx := context.Background()
		if cmd == "EVALSHA" && !client.ScriptExists(ctx, args[0]).Val()[0] {
			return false
		}
		return answer(c, args, func() {
			if err := client.Do(ctx, command(cmd, args)...).Err(); err != nil {
				t.Error(err)
			}
		})
	})
}

// command returns a command in the form that a client takes.
func command(name string, args []string) []any {
	line := []any{name}
	for _, arg := range args {
		line = append(line, arg)
	}
	return line
}

// loseAnswer lets the node carry out the next script that names a key, but breaks its connection.
// Later attempts are refused with the given errors, one after the other and the last one again and
// again.
func loseAnswer(t testing.TB, node *miniredis.Miniredis, key string, refusals ...string) {
	t.Helper()
	lost := false
	onScripts(t, node, func(c *server.Peer, args []string, run func()) bool {
		switch {
		case !slices.Contains(args, key):
			return false
		case !lost:
			lost = true
			run()
			c.Close()
		default:
			c.WriteError(refusals[0])
			refusals = refusals[min(1, len(refusals)-1):]
		}
		return true
	})
}

const (
	clusterDown = "CLUSTERDOWN The cluster is down"
	readOnly    = "READONLY You can't write against a read only replica."
	// movedAway sends a client to a port without a listener.
	movedAway = "MOVED 0 127.0.0.1:1"
)

// unknownOutcome checks that an error means an unknown outcome and nothing else.
func unknownOutcome(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, twotier.ErrUnknownOutcome) || errors.Is(err, syncer.ErrNotApplied) ||
		errors.Is(err, twotier.ErrUnavailable) {
		t.Errorf("%v, want an unknown outcome", err)
	}
}

// TestClusterLostAnswerIsUnknown: a node carries out a script, the connection breaks, and when the
// driver sends the script again, the node refuses it or can't be reached any more. A script that
// was carried out is never reported as refused or not applied.
func TestClusterLostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	for name, refusals := range map[string][]string{
		"down":      {clusterDown},
		"loading":   {"LOADING Redis is loading the dataset in memory"},
		"read only": {readOnly},
		"gone":      {clusterDown, movedAway}, // the last attempt finds nobody
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := miniredis.RunT(t)
			s := open(t, redisstore.Options{URL: "redis+cluster://" + node.Addr()})
			works(t, s)
			d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
			key := s.Address("a")

			loseAnswer(t, node, key, refusals...)
			r := oneRound(s, "a", 2)
			send(t, s, r)
			unknownOutcome(t, r.Err)
			if n := eventsIn(node, key); n != 2 {
				t.Errorf("the round: %d stored, want 2", n)
			}

			loseAnswer(t, node, key, refusals...)
			unknownOutcome(t, d.Forget(t.Context(), nil, []byte("a")))
			if node.Exists(key) {
				t.Error("the reset was not carried out")
			}
		})
	}
}

// TestClusterRefusalIsCertain: a command whose every attempt was refused, or reached nobody, is
// reported as not applied, however often the driver sent it.
func TestClusterRefusalIsCertain(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{clusterDown, readOnly, movedAway} {
		t.Run(strings.Fields(refusal)[0], func(t *testing.T) {
			t.Parallel()
			node := miniredis.RunT(t)
			s := open(t, redisstore.Options{URL: "redis+cluster://" + node.Addr()})
			works(t, s)
			d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
			onScripts(t, node, func(c *server.Peer, _ []string, _ func()) bool {
				c.WriteError(refusal)
				return true
			})
			r := oneRound(s, "a", 2)
			if send(t, s, r); !errors.Is(r.Err, syncer.ErrNotApplied) ||
				errors.Is(r.Err, twotier.ErrUnknownOutcome) {
				t.Errorf("round: %v", r.Err)
			}
			if err := d.Forget(t.Context(), nil, []byte("a")); !errors.Is(err,
				twotier.ErrUnavailable) || errors.Is(err, twotier.ErrUnknownOutcome) {
				t.Errorf("reset: %v", err)
			}
		})
	}
}

// twoRounds returns a round of the key "a" and one of a key of another partition.
func twoRounds(s *redisstore.Store) []*syncer.Round {
	return []*syncer.Round{oneRound(s, "a", 2), oneRound(s, elsewhere(s, "a", "b"), 1)}
}

// TestClusterRefusalBesideAnAnswer: the driver sends a whole pipeline again if its first command is
// refused. The other command was carried out the first time; the first one never was.
func TestClusterRefusalBesideAnAnswer(t *testing.T) {
	t.Parallel()
	node := miniredis.RunT(t)
	s := open(t, redisstore.Options{URL: "redis+cluster://" + node.Addr()})
	works(t, s)
	rounds := twoRounds(s)
	other := redisstore.Key(rounds[1].Partition, nil, rounds[1].Keys[0].Key)
	answered := false
	onScripts(t, node, func(c *server.Peer, args []string, _ func()) bool {
		if !answered && slices.Contains(args, other) {
			answered = true
			return false
		}
		c.WriteError(clusterDown)
		return true
	})
	send(t, s, rounds...)
	if err := rounds[0].Err; !errors.Is(err, syncer.ErrRefused) {
		t.Errorf("%v, want it to be refused", err)
	}
	unknownOutcome(t, rounds[1].Err)
	if n := eventsIn(node, other); n != 1 {
		t.Errorf("%d stored, want 1", n)
	}
}

// TestClusterAnswersLostAfterARedirection: two rounds are redirected to a node that carries them
// out, but the connection breaks before the first answer. The earlier redirection of the second
// round must not look like its outcome.
func TestClusterAnswersLostAfterARedirection(t *testing.T) {
	t.Parallel()
	from, to := miniredis.RunT(t), miniredis.RunT(t)
	s := open(t, redisstore.Options{URL: "redis+cluster://" + from.Addr()})
	works(t, s)
	works(t, open(t, redisstore.Options{URL: "redis+cluster://" + to.Addr()})) // has the script
	rounds := twoRounds(s)
	asked := 0
	var ran atomic.Int32
	onScripts(t, from, func(c *server.Peer, _ []string, _ func()) bool {
		if asked++; asked <= len(rounds) {
			c.WriteError(fmt.Sprint("MOVED 0 ", to.Addr()))
		} else {
			c.WriteError(clusterDown)
		}
		return true
	})
	onScripts(t, to, func(c *server.Peer, _ []string, run func()) bool {
		n := int(ran.Add(1))
		if n > len(rounds) { // the driver may have learnt that it is here
			c.WriteError(clusterDown)
			return true
		}
		if run(); n == len(rounds) {
			c.Close()
		}
		return true
	})
	send(t, s, rounds...)
	for i, r := range rounds {
		unknownOutcome(t, r.Err)
		key := redisstore.Key(r.Partition, nil, r.Keys[0].Key)
		if eventsIn(to, key) == 0 {
			t.Errorf("round %d was not carried out", i)
		}
	}
}

// TestRulesMeetTheirOwnVersion: the driver resends the command for a version that is already
// stored. Finding it there is a success, even if the next version follows it by then.
func TestRulesMeetTheirOwnVersion(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]bool{"newest": false, "followed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := miniredis.RunT(t)
			opt := redisstore.Options{URL: "redis+cluster://" + node.Addr()}
			s, other := open(t, opt), open(t, opt)
			works(t, s)
			must.Succeed(t, probe(t, other))
			var lost atomic.Bool
			onScripts(t, node, func(c *server.Peer, _ []string, run func()) bool {
				if lost.Swap(true) {
					return false
				}
				if run(); next {
					if err := other.Rules().Append(t.Context(), version(2)); err != nil {
						t.Error(err)
					}
				}
				c.Close()
				return true
			})
			if err := s.Rules().Append(t.Context(), version(1)); err != nil || !lost.Load() {
				t.Errorf("%v, answer lost: %v", err, lost.Load())
			}
			mine := version(1)
			mine.ID = "mine"
			if err := s.Rules().Append(t.Context(), mine); !errors.Is(err, twotier.ErrRulesMoved) {
				t.Errorf("another version of that number: %v", err)
			}
		})
	}
}

// TestDirectClusterTakesBackWhatItCan acquires over three partitions, the last of which refuses.
// The first one's count can't be taken back. The second one's count is taken back nevertheless, and
// the outcome is unknown.
func TestDirectClusterTakesBackWhatItCan(t *testing.T) {
	t.Parallel()
	node, srv := miniredis.RunT(t), redistest.Start(t)
	s := open(t, redisstore.Options{URL: "redis+cluster://" + node.Addr()})
	works(t, s)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	a := "a"
	b := elsewhere(s, a, "b")
	c := elsewhere(s, a, "c")
	for i := 0; s.Partition(c) == s.Partition(b); i++ {
		c = elsewhere(s, a, fmt.Sprint("c", i, "-"))
	}
	var ofA atomic.Int64
	// The node can't run the script, but the server can.
	node.Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
		if cmd == "HMGET" || cmd == "HGETALL" {
			values, _ := srv.Do(command(cmd, args)...).StringSlice()
			p.WriteStrings(values)
			return true
		}
		if !strings.HasPrefix(cmd, "EVAL") {
			return false
		}
		if cmd == "EVALSHA" {
			p.WriteError("NOSCRIPT No matching script. Please use EVAL.")
			return true
		}
		if slices.Contains(args, s.Address(a)) && ofA.Add(1) > 1 {
			p.WriteError("OOM command not allowed when used memory > 'maxmemory'.")
			return true
		}
		if reply, err := srv.Do(command(cmd, args)...).Result(); err != nil {
			p.WriteError(err.Error())
		} else {
			writeReply(p, reply)
		}
		return true
	})
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{check(a, 1, 60_000, 10),
		check(b, 1, 60_000, 10), check(c, 1, 60_000, 0)}}
	var res twotier.Result
	err := d.Do(t.Context(), &op, &res)
	if !errors.Is(err, twotier.ErrUnknownOutcome) || !strings.Contains(err.Error(), "take back") {
		t.Errorf("%v, want an unknown outcome", err)
	}
	if n := sumIn(t, srv, s.Address(a)); n != 1 {
		t.Errorf("the first key holds %d, want 1", n)
	}
	if n := sumIn(t, srv, s.Address(b)); n != 0 {
		t.Errorf("the second key holds %d, which could be taken back", n)
	}
}

// writeReply passes the reply of a server on.
func writeReply(p *server.Peer, reply any) {
	switch reply := reply.(type) {
	case []any:
		p.WriteLen(len(reply))
		for _, v := range reply {
			writeReply(p, v)
		}
	case int64:
		p.WriteInt(int(reply))
	default:
		p.WriteBulk(fmt.Sprint(reply))
	}
}
