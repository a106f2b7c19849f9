package faulttest

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// Writes that the primary had not sent to its replica when it was killed are lost in Redis, but a
// live node still has them in memory: it notices the loss and restores them, so L is 0 here too.
func TestFault7SentinelFailover(t *testing.T) {
	takesLong(t)
	t.Parallel()
	s := redistest.StartSentinel(t)
	b := newSingle(t, s)
	b.restart()
	tr := b.Traffic()
	tr.Accept(400)
	old := s.KillPrimary(t)
	tr.Accept(200)
	s.WaitPromotion(t, old)
	tr.Accept(300)
	proctest.Until(t, "the node has found the new primary",
		func() bool { return b.node.Metric("twotier_redis_up", "") == 1 })
	tr.Accept(100)
	tr.Stop()
	b.settle("7 Sentinel failover", 0)
}

func TestFault7ClusterMigrationAndFailover(t *testing.T) {
	takesLong(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	b := newSingle(t, c, "--partitions", "97")
	b.restart()
	tr := b.Traffic()
	tr.Accept(300)
	slot := c.Slot(t, b.Hash(proctest.HotKey))
	from := c.Owner(t, slot)
	to := c.Primaries(t)[0]
	if to == from {
		to = c.Primaries(t)[1]
	}
	// The slot stays half moved for a while: ASK for keys that have moved, TRYAGAIN for a script
	// that needs keys of both kinds.
	c.SetMigrating(t, slot, from, to)
	tr.Accept(100)
	c.MigrateKeys(t, slot, from, to, 2)
	tr.Accept(200)
	for c.MigrateKeys(t, slot, from, to, 0) > 0 {
	}
	tr.Accept(100)
	c.FinishMigration(t, slot, from, to)
	tr.Accept(200)
	old := c.KillPrimary(t, slot)
	tr.Accept(200)
	c.WaitPromotion(t, slot, old)
	tr.Accept(300)
	tr.Stop()
	b.settle("7 Cluster migration and failover", 0)
}

// TestFault7ReplicaThatLagged takes Redis back to the older data of a replica. Only the node still
// has the counts made since.
func TestFault7ReplicaThatLagged(t *testing.T) {
	b := newBed(t, nil)
	replica := redistest.Start(t)
	tr := b.Traffic()
	tr.Accept(300)
	follow(t, replica, b.redis)
	alone(t, replica)
	tr.Accept(400)
	follow(t, b.redis, replica) // drops its data; refuses writes while it is a replica
	alone(t, b.redis)
	tr.Accept(300)
	tr.Stop()
	b.settle("7 a replica that lagged", 0)
	if b.node.Metric("twotier_losses_total", "") == 0 {
		t.Error("no loss was noticed")
	}
}

// follow makes a server a replica and waits until it has all data of its primary.
func follow(t *testing.T, replica, primary *redistest.Server) {
	t.Helper()
	host, port, _ := strings.Cut(primary.Addr(), ":")
	must.Succeed(t, replica.Do("REPLICAOF", host, port).Err())
	proctest.Until(t, "the replica is in sync", func() bool {
		info, err := replica.Do("INFO", "replication").Text()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
}

func alone(t *testing.T, s *redistest.Server) {
	t.Helper()
	must.Succeed(t, s.Do("REPLICAOF", "NO", "ONE").Err())
}

// In these tests Redis itself decides which server takes over. A proxy between primary and replica
// would not work: Sentinel and Redis Cluster give replicas the address of their primary.

// locked makes servers require a password of each other, so that a test can give a replica a wrong
// one.
func locked() redistest.Option { return redistest.ACL("alice", "s3cret-s3cret") }

// cut cuts a replica off from its primary. All others can still reach both.
func cut(t *testing.T, primary, replica *redistest.Server) {
	t.Helper()
	must.Succeed(t, replica.Do("CONFIG", "SET", "masterauth", "wrong").Err())
	must.Succeed(t, primary.Do("CLIENT", "KILL", "TYPE", "replica").Err())
}

// batches starts a worker whose requests add to all keys of an ack.
func (a *ackers) batches(ack string) {
	var keys []string
	for i := range ackKeys {
		keys = append(keys, ackKey(ack, i))
	}
	for range 2 {
		a.tr.Repeat(func() { a.tr.Batch(keys, ack) })
	}
}

// goesOn waits until n more counts have been acknowledged with an ack.
func (a *ackers) goesOn(t *testing.T, ack string, n int64) {
	t.Helper()
	before, _ := a.sums(ack)
	proctest.Until(t, "ack="+ack+" is acknowledged", func() bool {
		now, _ := a.sums(ack)
		return now >= before+n
	})
}

// tooFew checks that a node that asks for one replica more than there are does not start.
func tooFew(t *testing.T, url string) {
	t.Helper()
	n, err := program.TryServe(t, proctest.Options{}, "--redis", url, "--ack", "replica",
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

// killAll stops the workers and kills the nodes, whose memory would restore lost counts in Redis.
func (p *pairOf) killAll() {
	for _, n := range p.Nodes {
		n.Kill()
	}
	p.tr.Stop()
}

// TestAckReplicaBehindSentinel makes Sentinel promote a replica while requests wait for it: a
// primary without a replica acknowledges nothing. Then the other server, by now a replica, is cut
// off and promoted: every event acknowledged with ack=replica must be there.
func TestAckReplicaBehindSentinel(t *testing.T) {
	takesLong(t)
	t.Parallel()
	s := redistest.StartSentinel(t, locked())
	tooFew(t, s.URL())
	a := serveTwo(t, s, "--redis-timeout", "400ms")
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
	client := old.Client(t)
	a.report(t, "Sentinel", a.survived(t, client, "replica"), a.survived(t, client, "redis"))
}

// report logs how many counts were lost, and fails the test if an ack promises less loss.
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

// knownByServer sends batches with ack=replica to all primaries while the replica of one of them
// doesn't answer. The outcome must be unknown for that one, and for the other primaries known, as
// soon as nothing else takes too long.
func (p *pairOf) knownByServer(t *testing.T, lags func(key string) bool) {
	t.Helper()
	body, keys := &strings.Builder{}, 24
	for i := range keys {
		fmt.Fprintf(body, `,{"op":"add","key":"by-server-%d","ack":"replica"}`, i)
	}
	proctest.UntilNil(t, "the others are known", func() error {
		var answers struct{ Results []proctest.Answer }
		err := p.Nodes[0].Ask("/v1/batch", `{"ops":[`+body.String()[1:]+`]}`, &answers)
		if err != nil || len(answers.Results) != keys {
			t.Fatalf("%v: %+v", err, answers)
		}
		lagging := 0
		var late error
		for i, of := range answers.Results {
			unknown := of.Error != nil && of.Error.Outcome == "unknown"
			lag := lags(fmt.Sprintf("by-server-%d", i))
			if lag {
				lagging++
			}
			switch {
			case lag && of.Error == nil:
				t.Errorf("key %d is known", i)
			case lag != unknown:
				late = fmt.Errorf("key %d: %+v, want it unknown: %v", i, of.Error, lag)
			}
		}
		if lagging == 0 || lagging == keys {
			t.Errorf("%d of %d are unknown, want some", lagging, keys)
		}
		return late
	})
}

// TestAckReplicaInACluster cuts off the replica of one of three primaries and then promotes it. A
// request to several primaries is acknowledged only by replicas of all of them.
func TestAckReplicaInACluster(t *testing.T) {
	takesLong(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1, locked())
	tooFew(t, c.URL())
	a := serveTwo(t, c, "--redis-timeout", "400ms")
	a.start("redis", "replica")
	a.batches("replica")
	a.goesOn(t, "replica", 200)
	slot := c.Slot(t, proctest.Hash(twotier.DefaultPartitions, ackKey("redis", 0)))
	primary := c.Owner(t, slot)
	replica := c.Replicas(t, primary)[0]
	replica.Pause() // it stays connected, but doesn't answer
	a.knownByServer(t, func(key string) bool {
		return c.Owner(t, c.Slot(t, proctest.Hash(twotier.DefaultPartitions, key))) == primary
	})
	replica.Resume()
	cut(t, primary, replica)
	a.goesOn(t, "redis", 200)
	a.goesOn(t, "replica", 20) // requests to only the other primaries
	a.killAll()
	primary.Kill()
	if now := c.WaitPromotion(t, slot, primary); now != replica {
		t.Fatalf("%s was promoted, not %s", now.Addr(), replica.Addr())
	}
	client := c.Client(t)
	a.report(t, "Redis Cluster", a.survived(t, client, "replica"),
		a.survived(t, client, "redis"))
}
