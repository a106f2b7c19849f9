package clustertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// messages are the messages with one content to one receiver.
type messages struct{ receiver, content string }

func messagesTo(number int) messages {
	receiver := fmt.Sprintf("{1882934%04d}", number)
	return messages{receiver, receiver + ":hello"}
}

// send asks a node to admit one more message. The limit is two.
func (m messages) send(p *proctest.Process) (allowed bool) {
	p.T.Helper()
	body := fmt.Sprintf(`{"checks":[{"ns":"sms","key":%q,"limits":[{"window":"24h","max":50}]},`+
		`{"ns":"sms","key":%q,"limits":[{"window":"1h","max":2}]}]}`, m.receiver, m.content)
	var answer struct{ Allowed *bool }
	if err := p.Ask("/v1/acquire", body, &answer); err != nil || answer.Allowed == nil {
		p.T.Fatalf("%v: %+v", err, answer)
	}
	return *answer.Allowed
}

// counts asks a node for the counts of both keys, and for the source of its answers.
func (m messages) counts(p *proctest.Process) (n [2]int64, sources [2]string) {
	p.T.Helper()
	for i, key := range []string{m.receiver, m.content} {
		answer, err := p.TryCount("ns=sms&window=24h&key=" + key)
		must.Succeed(p.T, err)
		n[i], sources[i] = answer.Counts[0].Count, answer.Source
	}
	return n, sources
}

// configured writes a configuration file.
func configured(t *testing.T, text string) string {
	t.Helper()
	return must.File(t, "twotier.yaml", text)
}

// TestHashTags sends three messages of each kind to three nodes. One node must decide about both
// keys of a message, and both must be in one slot of Redis. A server in pure-Redis mode finds them
// there, and a node that would place them differently is refused.
func TestHashTags(t *testing.T) {
	const receivers = 40
	file := configured(t, "namespaces: {sms: {hash_tags: true}}")
	c := start(t, 3, "--config", file)
	for r := range receivers {
		for i := range 3 {
			if m := messagesTo(r); m.send(c.Nodes[(r+i)%3]) != (i < 2) {
				t.Errorf("%s: message %d", m.content, i)
			}
		}
	}
	c.decidedByOne(receivers)
	c.clientAsksOwners(receivers)
	c.flushed()
	c.oneSlotEach(receivers)
	direct := program.Serve(t, proctest.Options{}, append([]string{"--redis", c.URL,
		"--mode", "redis"}, c.Args...)...)
	for r := range receivers {
		m := messagesTo(r)
		if n, sources := m.counts(direct); n != [2]int64{2, 2} || sources[1] != "redis" {
			t.Errorf("%s: Redis has %d, by %s", m.content, n, sources)
		}
		if m.send(direct) {
			t.Errorf("%s: a third was admitted in Redis", m.content)
		}
	}
	const reason = "its counts were made with hash-tags = sms, this node has no namespace"
	stranger, err := program.TryServe(t, proctest.Options{}, append(c.Command(3), "--config",
		configured(t, "namespaces: {sms: {hash_tags: false}}"))...)
	if err == nil || stranger.ExitCode() != 1 || !strings.Contains(stranger.Log.String(), reason) {
		t.Errorf("a node without hash tags: %v\n%s", err, stranger.Log.String())
	}
}

// decidedByOne asks every node for the counts: exactly one node has the keys of a message in
// memory, and it has both. Every node decides about some messages.
func (c *cluster) decidedByOne(receivers int) {
	c.T.Helper()
	decides := map[int]int{}
	for r := range receivers {
		m := messagesTo(r)
		owners := 0
		for i, node := range c.Nodes {
			n, sources := m.counts(node)
			if n != [2]int64{2, 2} || sources[0] != sources[1] {
				c.T.Errorf("%s: node %d says %d, from %s", m.content, i, n, sources)
			}
			if sources[0] == "memory" {
				owners++
				decides[i]++
			}
		}
		if owners != 1 {
			c.T.Errorf("%s: %d nodes have it in memory", m.content, owners)
		}
	}
	if len(decides) != len(c.Nodes) {
		c.T.Errorf("messages decided about by each node: %v", decides)
	}
}

// clientAsksOwners gives a client the address of one node and asks about the messages. The client
// must find the other nodes, and the one that decides about both keys.
func (c *cluster) clientAsksOwners(receivers int) {
	c.T.Helper()
	ctx := context.Background()
	asks, err := client.New(client.Options{
		Addresses: []string{strings.TrimPrefix(c.Nodes[0].Base, "http://")}})
	must.Succeed(c.T, err)
	defer asks.Close(ctx)
	proctest.Until(c.T, "the client knows all nodes", func() bool {
		return asks.Stats().Members == len(c.Nodes)
	})
	for r := range receivers {
		m := messagesTo(r)
		answer, err := asks.Acquire(ctx, client.AcquireRequest{Checks: []client.Check{
			{Namespace: "sms", Key: m.receiver,
				Limits: []client.Limit{{Window: time.Hour, Max: 1}}},
			{Namespace: "sms", Key: m.content, Limits: []client.Limit{{Window: time.Hour, Max: 1}}},
		}})
		if err != nil || answer.Allowed || answer.Source != client.SourceMemory {
			c.T.Errorf("%s: %+v, %v", m.content, answer, err)
		}
	}
}

// oneSlotEach checks the names in Redis: their hash tag is that of the partition.
func (c *cluster) oneSlotEach(receivers int) {
	c.T.Helper()
	names, err := c.Direct.Keys(context.Background(), "tt:*:sms:*").Result()
	if err != nil || len(names) != 2*receivers {
		c.T.Fatalf("%v: %d keys, want %d", err, len(names), 2*receivers)
	}
	slots := map[string]string{}
	for _, name := range names {
		slot, key, _ := strings.Cut(name, ":sms:")
		receiver := strings.TrimSuffix(key, ":hello")
		if other, ok := slots[receiver]; ok && other != slot {
			c.T.Errorf("%s is at %s and %s", receiver, slot, other)
		}
		slots[receiver] = slot
	}
}

// TestFault7RedisClusterBeneathThreeNodes moves a slot and kills a primary while three nodes count
// in a Redis Cluster. Writes that the primary had not sent to its replica are lost in Redis, but
// the owners have them in memory and restore them: L is 0.
func TestFault7RedisClusterBeneathThreeNodes(t *testing.T) {
	t.Parallel()
	rc := redistest.StartCluster(t, 3, 1)
	c := startOver(t, rc, 3)
	tr := c.Traffic()
	tr.Accept(300)
	slot := rc.Slot(t, proctest.Hash(c.Partitions, proctest.HotKey))
	moveSlot(t, rc, slot, func() { tr.Accept(150) })
	c.Serve(3) // partitions change owners meanwhile
	tr.To(c.Bases()...)
	old := rc.KillPrimary(t, slot)
	tr.Accept(200)
	rc.WaitPromotion(t, slot, old)
	tr.Accept(300)
	c.Stop(0)
	tr.To(c.Bases()...)
	tr.Accept(200)
	tr.Stop()
	c.Settle("7 Redis Cluster, migration and failover beneath nodes that come and go", 0)
}
