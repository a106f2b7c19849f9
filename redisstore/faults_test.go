package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

func hget(t testing.TB, srv *redistest.Server, s *redisstore.Store, key string) int64 {
	t.Helper()
	return bucketsIn(t, srv, s.Address(key))[second]
}

// TestReplyLost sends a round again after its reply was lost, in every possible way.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	srv, p, s := startProxied(t, 500*time.Millisecond)
	works(t, s)
	seq := uint64(1)
	for name, lose := range map[string]func() <-chan struct{}{
		"closed":  func() <-chan struct{} { return p.SwallowNext("evalsha") },
		"silence": func() <-chan struct{} { return p.SwallowMatching("evalsha", 1, false) },
		"cut":     func() <-chan struct{} { return p.CutNext("evalsha", 3) },
	} {
		seq++
		lost := lose()
		r := oneRound(s, "a", seq)
		send(t, s, r)
		if r.Err == nil || errors.Is(r.Err, syncer.ErrNotApplied) ||
			!errors.Is(r.Err, twotier.ErrUnknownOutcome) {
			t.Errorf("%s: %v, want an unknown outcome", name, r.Err)
		}
		<-lost
		for range 2 {
			send(t, s, r)
			for range 10 { // a busy machine may be late for a connection
				if r.Err != nil {
					send(t, s, r)
				}
			}
			if r.Err != nil || r.Lost || r.Keys[0].Err != nil {
				t.Errorf("%s: again: %v, lost %v, %+v", name, r.Err, r.Lost, r.Keys[0].Adds)
			}
		}
		if got := hget(t, srv, s, "a"); got != int64(seq) {
			t.Errorf("%s: %d in Redis, want %d", name, got, seq)
		}
	}
}

// TestRequestLost: the server never sees a round, but the client can't know that.
func TestRequestLost(t *testing.T) {
	t.Parallel()
	srv, p, s := startProxied(t, 2*time.Second)
	works(t, s)
	patient := open(t, redisstore.Options{URL: "redis://" + p.Addr(), Timeout: time.Hour})
	works(t, patient)
	p.DropRequests()
	r := oneRound(s, "a", 2)
	if send(t, s, r); r.Err == nil || errors.Is(r.Err, syncer.ErrNotApplied) {
		t.Errorf("%v, want an unknown outcome", r.Err)
	}
	if s.Health().Err == nil {
		t.Error("it takes itself for up")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if patient.Exchange(ctx, []*syncer.Round{r}); r.Err == nil {
		t.Error("no error although the context has ended")
	}
	p.CloseAll()
	p.Pass()
	send(t, s, r)
	for range 10 { // a busy machine may be late for a connection
		if r.Err != nil {
			send(t, s, r)
		}
	}
	if r.Err != nil || hget(t, srv, s, "a") != 2 {
		t.Errorf("afterwards: %v, %d in Redis", r.Err, hget(t, srv, s, "a"))
	}
}

func TestDialRefused(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	works(t, s)
	srv.Kill()
	r := oneRound(s, "a", 2)
	send(t, s, r) // finds the connection broken
	if send(t, s, r); !errors.Is(r.Err, syncer.ErrNotApplied) {
		t.Errorf("%v, want it to be not applied", r.Err)
	}
	srv.Restart(t)
	if send(t, s, r); r.Err != nil || !r.Lost {
		t.Errorf("a server that lost everything: %v, lost %v", r.Err, r.Lost)
	}
	if send(t, s, oneRound(s, "b", 1)); srv.Do("EXISTS", prefix.MetaKey()).Val() != int64(1) {
		t.Error("the values that all share were not written again")
	}
}

func TestScriptFlush(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	stop := make(chan struct{})
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := srv.Do("SCRIPT", "FLUSH").Err(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	const rounds = 100
	for seq := range uint64(rounds) {
		var batch []*syncer.Round
		for i := range 20 {
			batch = append(batch, oneRound(s, fmt.Sprint("key-", i), seq+1))
			batch[i].Partition = i
		}
		for tries := 0; tries < 50; tries++ {
			send(t, s, batch...)
			if failed := firstError(batch); failed == nil {
				break
			} else if !strings.Contains(failed.Error(), "NOSCRIPT") ||
				!errors.Is(failed, syncer.ErrNotApplied) {
				t.Fatal(failed)
			}
		}
		add(t, d, "direct", 1, 0)
	}
	close(stop)
	flusher.Wait()
	for i := range 20 {
		got := bucketsIn(t, srv, redisstore.Key(i, nil, fmt.Append(nil, "key-", i)))[second]
		if got != rounds {
			t.Errorf("key-%d: %d, want %d", i, got, rounds)
		}
	}
	hi(t, d, "direct", rounds)
}

func firstError(rounds []*syncer.Round) error {
	for _, r := range rounds {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	works(t, s)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	add(t, d, "direct", 1, 0)
	config := func(limit string) {
		must.Succeed(t, srv.Do("CONFIG", "SET", "maxmemory", limit).Err())
	}
	config("1")
	full := oneRound(s, "a", 2)
	full.Keys[0].Reset = true
	full.Keys = append(full.Keys, oneRound(s, "b", 2).Keys...)
	for range 2 {
		if send(t, s, full); !errors.Is(full.Err, syncer.ErrNotApplied) ||
			!strings.Contains(full.Err.Error(), "OOM") {
			t.Errorf("%v, want it to be not applied for want of memory", full.Err)
		}
	}
	if a := hget(t, srv, s, "a"); a != 1 {
		t.Errorf("%d in Redis, want 1", a)
	}
	if kept, err := srv.Do("GET",
		prefix.WriterKey(s.Partition("a"), "w")).Text(); kept != "1.0" || err != nil {
		t.Errorf("the sequence is %s, %v", kept, err)
	}
	read := &syncer.Round{Partition: full.Partition, Writer: "w", Acked: 1,
		Keys: []syncer.KeyRound{{Key: []byte("a"), Load: true}}}
	if send(t, s, read); read.Err != nil || len(read.Keys[0].Loaded) != 1 {
		t.Errorf("a read: %v, %v", read.Err, read.Keys[0].Loaded)
	}
	op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check("direct", 1)}}
	var res twotier.Result
	if err := d.Do(t.Context(), &op, &res); !errors.Is(err, twotier.ErrUnavailable) ||
		errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("direct: %v", err)
	}
	config("0")
	send(t, s, full)
	for _, k := range full.Keys {
		n := bucketsIn(t, srv, redisstore.Key(full.Partition, nil, k.Key))[second]
		if full.Err != nil || n != 1 {
			t.Errorf("with memory again: %v, %d of %s", full.Err, n, k.Key)
		}
	}
	hi(t, d, "direct", 1)
}

func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	s := open(t, redisstore.Options{URL: primary.URL()})
	works(t, s)
	other := redistest.Start(t)
	host, port, _ := strings.Cut(other.Addr(), ":")
	must.Succeed(t, primary.Do("REPLICAOF", host, port).Err())
	r := oneRound(s, "a", 1)
	r.Seq = 2
	if send(t, s, r); !errors.Is(r.Err, syncer.ErrNotApplied) ||
		!strings.Contains(r.Err.Error(), "READONLY") {
		t.Errorf("%v, want it to be refused as read only", r.Err)
	}
	must.Succeed(t, primary.Do("REPLICAOF", "NO", "ONE").Err())
	if send(t, s, r); r.Err != nil {
		t.Errorf("a primary again: %v", r.Err)
	}
}

// TestForeignType checks that a value of another type is left alone, including its time to live.
func TestForeignType(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	works(t, s)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	foreign := s.Address("foreign")
	must.Succeed(t, srv.Do("SET", foreign, "mine").Err())
	r := oneRound(s, "foreign", 1)
	r.Writer = "other"
	r.Keys = append(r.Keys, oneRound(s, "b", 1).Keys...)
	if send(t, s, r); r.Err != nil || r.Keys[0].Err == nil || r.Keys[1].Err != nil ||
		bucketsIn(t, srv, redisstore.Key(r.Partition, nil, []byte("b")))[second] != 1 {
		t.Errorf("%v, %v, %v, %+v", r.Err, r.Keys[0].Err, r.Keys[1].Err, r.Keys[1].Adds)
	}
	again := &syncer.Round{Partition: r.Partition, Writer: "restorer", Seq: 1, Keys: r.Keys,
		Epoch: r.Epoch, Version: r.Version, Republish: true}
	if send(t, s, again); again.Err != nil {
		t.Error(again.Err)
	}
	for name, op := range map[string]twotier.Op{
		"add": {Kind: twotier.Add, Checks: []twotier.Check{check("foreign", 1)}},
		"acquire": {Kind: twotier.Acquire,
			Checks: []twotier.Check{check("ours", 1, 1000, 9), check("foreign", 1, 1000, 9)}},
		"count": {Kind: twotier.Count, Checks: []twotier.Check{check("foreign", 0, 1000, 0)}},
	} {
		var res twotier.Result
		if err := d.Do(t.Context(), &op, &res); !errors.Is(err, twotier.ErrUnavailable) ||
			!strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := count(t, d, "ours", 1000); got != 0 {
		t.Errorf("a refused acquire counted %d", got)
	}
	if h := s.Health(); h.Err != nil {
		t.Errorf("one bad key takes all down: %v", h.Err)
	}
	if text, err := srv.Do("GET", foreign).Text(); text != "mine" || err != nil {
		t.Errorf("it is %q now, %v", text, err)
	}
	if ttl, err := srv.Do("PTTL", foreign).Int(); ttl != -1 || err != nil {
		t.Errorf("it expires in %d ms now, %v", ttl, err)
	}
}

// TestOverflow: a key with more events than a number can hold has no count, and keeps no other key
// from being counted.
func TestOverflow(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	for seq := range uint64(2) {
		r := oneRound(s, "a", seq+1)
		r.Keys[0].Adds[0].N = 1<<63 - 1
		r.Keys = append(r.Keys, oneRound(s, "b", seq+1).Keys...)
		if send(t, s, r); r.Err != nil || r.Keys[0].Err != nil || r.Keys[1].Err != nil {
			t.Fatalf("%v, %v, %v", r.Err, r.Keys[0].Err, r.Keys[1].Err)
		}
	}
	r := oneRound(s, "a", 0)
	r.Keys = []syncer.KeyRound{{Key: []byte("a"), Load: true}}
	send(t, s, r)
	if got := r.Keys[0].Loaded; len(got) != 1 || got[0].N != syncer.NoCount ||
		syncer.CheckCounts(got) == nil {
		t.Errorf("it has %v", got)
	}
}

// TestRefusedKeyStaysRefused repairs a key after a round in which it was refused, and whose reply
// was lost. When the round is sent again, it must not seem to have counted the key.
func TestRefusedKeyStaysRefused(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	r := oneRound(s, "bad", 1)
	r.Keys = append(r.Keys, oneRound(s, "good", 1).Keys...)
	foreign := redisstore.Key(r.Partition, nil, []byte("bad"))
	must.Succeed(t, srv.Do("SET", foreign, "mine").Err())
	if send(t, s, r); r.Keys[0].Err == nil || r.Keys[1].Err != nil {
		t.Fatalf("%v, %v", r.Keys[0].Err, r.Keys[1].Err)
	}
	must.Succeed(t, srv.Do("DEL", foreign).Err())
	if send(t, s, r); r.Err != nil || r.Keys[0].Err == nil || r.Keys[1].Err != nil {
		t.Errorf("again: %v, %v, %v", r.Err, r.Keys[0].Err, r.Keys[1].Err)
	}
	next := oneRound(s, "bad", 2)
	send(t, s, next)
	if next.Err != nil || next.Lost || next.Keys[0].Err != nil {
		t.Errorf("the next round: %v, lost %v, %v", next.Err, next.Lost, next.Keys[0].Err)
	}
}

// TestSlowRedisBecomesReady has a Redis that answers one round trip well within the timeout, but
// not the several round trips of the first exchange.
func TestSlowRedisBecomesReady(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := faultproxy.New(t, srv.Addr())
	const timeout = 300 * time.Millisecond
	s := open(t, redisstore.Options{URL: "redis://" + p.Addr(), Timeout: timeout})
	p.Delay(timeout / 3)
	for end := time.Now().Add(3 * time.Minute); ; {
		r := oneRound(s, "a", 1)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		s.Exchange(ctx, []*syncer.Round{r})
		cancel()
		if r.Err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(r.Err)
		}
	}
}
