package faulttest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/syncer"
)

// These tests have Redis itself decide who takes over. A link through a proxy would not do:
// Sentinel and Redis Cluster tell replicas where their primary is.

// locked has servers ask each other for a password, so that a replica can be given a wrong one.
func locked() redistest.Option { return redistest.ACL("alice", "s3cret-s3cret") }

// cut has a replica hear nothing more of its primary. Both are there for everybody else.
func cut(t *testing.T, primary, replica *redistest.Server) {
	t.Helper()
	if err := replica.Do("CONFIG", "SET", "masterauth", "wrong").Err(); err != nil {
		t.Fatal(err)
	}
	if err := primary.Do("CLIENT", "KILL", "TYPE", "replica").Err(); err != nil {
		t.Fatal(err)
	}
}

// batches has requests that concern all keys of an ack.
func (a *ackers) batches(ack string) {
	var keys []string
	for i := range ackKeys {
		keys = append(keys, ackKey(ack, i))
	}
	for range 2 {
		a.tr.Repeat(func() { a.tr.Batch(keys, ack) })
	}
}

// goesOn waits until so many more counts were acknowledged with an ack.
func (a *ackers) goesOn(t *testing.T, ack string, n int64) {
	t.Helper()
	before, _ := a.sums(ack)
	proctest.Until(t, "ack="+ack+" is acknowledged", func() bool {
		now, _ := a.sums(ack)
		return now >= before+n
	})
}

// tooFew checks that a node is refused that asks for a replica more than there is.
func tooFew(t *testing.T, url string) {
	t.Helper()
	n, err := build.program.TryServe(t, proctest.Options{}, "--redis", url, "--ack", "replica",
		"--ack-replicas", "2")
	if err == nil {
		t.Fatal("it started with one replica of two")
	}
	proctest.Wait(t, "the end", n.Done())
	if log := n.Log.String(); n.ExitCode() != 1 ||
		!strings.Contains(log, "1 of 2 replicas are connected") {
		t.Errorf("exit status %d\n%s", n.ExitCode(), log)
	}
}

// killAll ends the nodes, whose memory would restore what Redis has lost, and who counts with them.
func (p *pairOf) killAll() {
	for _, n := range p.nodes {
		n.Kill()
	}
	p.tr.Stop()
}

// TestAckReplicaBehindSentinel has Sentinel promote a replica while requests wait for it: nothing
// is acknowledged by a primary without one. Then the other server, which is a replica by now,
// misses what comes, and is promoted: what was acknowledged with ack=replica is there.
func TestAckReplicaBehindSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, locked())
	tooFew(t, s.URL())
	a := serveTwo(t, s.URL(), "--redis-timeout", "400ms")
	a.start("redis", "replica")
	a.goesOn(t, "replica", 100)
	old := s.KillPrimary(t)
	now := s.WaitPromotion(t, old)
	a.goesOn(t, "redis", 100)
	before, _ := a.sums("replica")
	a.goesOn(t, "redis", 100)
	if after, _ := a.sums("replica"); after != before {
		t.Errorf("%d were acknowledged with ack=replica where there was no replica", after-before)
	}
	old.Restart(t)
	a.goesOn(t, "replica", 100)
	cut(t, now, old)
	a.goesOn(t, "redis", 200)
	a.killAll()
	now.Kill()
	s.WaitPromotion(t, now)
	a.report(t, "Sentinel", a.survived(t, old, "replica"), a.survived(t, old, "redis"))
}

// report logs what was lost, and fails if that is not what each ack promises.
func (a *ackers) report(t *testing.T, what string, lost, lostPlain int64) {
	t.Helper()
	if lost != 0 {
		t.Errorf("%d of what ack=replica acknowledged did not survive", lost)
	}
	if lostPlain == 0 {
		t.Error("nothing of what ack=redis acknowledged is lost: no replica missed anything")
	}
	acked, unknown := a.sums("replica")
	plain, _ := a.sums("redis")
	t.Logf("%s: ack=replica: %d acknowledged, %d lost, %d unknown, half within %v; ack=redis: "+
		"%d acknowledged, %d lost",
		what, acked, lost, unknown, a.median("replica"), plain, lostPlain)
}

// knownByServer has a batch count with ack=replica at all primaries, of which one has a replica
// that says nothing: what the others counted is known, and what that one did is not.
func (p *pairOf) knownByServer(t *testing.T, lags func(key string) bool) {
	t.Helper()
	body, keys := &strings.Builder{}, 24
	for i := range keys {
		fmt.Fprintf(body, `,{"op":"add","key":"by-server-%d","ack":"replica"}`, i)
	}
	var answers struct{ Results []proctest.Answer }
	out := p.nodes[0].MustPost("/v1/batch", `{"ops":[`+body.String()[1:]+`]}`)
	if err := json.Unmarshal(out, &answers); err != nil || len(answers.Results) != keys {
		t.Fatalf("%v: %s", err, out)
	}
	known := 0
	for i, of := range answers.Results {
		want := lags(fmt.Sprintf("by-server-%d", i))
		if unknown := of.Error != nil && of.Error.Outcome == "unknown"; unknown != want {
			t.Errorf("key %d: %+v, want it unknown: %v", i, of.Error, want)
		} else if !want {
			known++
		}
	}
	if known == 0 || known == keys {
		t.Errorf("%d of %d are known, want some", known, keys)
	}
}

// TestAckReplicaInACluster has the replica of one of three primaries miss what comes, and be
// promoted then: a request that concerns several primaries is acknowledged by replicas of all of
// them, or not.
func TestAckReplicaInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1, locked())
	tooFew(t, c.URL())
	a := serveTwo(t, c.URL(), "--redis-timeout", "400ms")
	a.start("redis", "replica")
	a.batches("replica")
	a.goesOn(t, "replica", 200)
	slot := c.Slot(t, proctest.Hash(syncer.DefaultPartitions, ackKey("redis", 0)))
	primary := c.Owner(t, slot)
	replica := c.Replicas(t, primary)[0]
	replica.Pause() // it is connected, and says nothing
	a.knownByServer(t, func(key string) bool {
		return c.Owner(t, c.Slot(t, proctest.Hash(syncer.DefaultPartitions, key))) == primary
	})
	replica.Resume()
	cut(t, primary, replica)
	a.goesOn(t, "redis", 200)
	a.goesOn(t, "replica", 20) // what concerns the other primaries alone
	a.killAll()
	primary.Kill()
	if now := c.WaitPromotion(t, slot, primary); now != replica {
		t.Fatalf("%s was promoted, not %s", now.Addr(), replica.Addr())
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: "alice",
		Password: "s3cret-s3cret"})
	defer client.Close()
	a.report(t, "Redis Cluster", a.survivedIn(t, client, "replica"),
		a.survivedIn(t, client, "redis"))
}
