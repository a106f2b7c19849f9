package clustertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
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
		if err != nil || answer.Allowed || answer.Source != twotier.SourceMemory {
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
//
// It runs alone: on a busy machine some counts of the hot key were missing, for a cause that is not
// known yet.
func TestFault7RedisClusterBeneathThreeNodes(t *testing.T) {
	rc := redistest.StartCluster(t, 3, 1)
	c := startOver(t, rc, 3)
	tr := c.Traffic()
	tr.Accept(300)
	slot := rc.Slot(t, proctest.Hash(c.Partitions, proctest.HotKey))
	more := func() { tr.Accept(150) }
	moveSlot(t, rc, slot, more, more)
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

// service is a cluster of two nodes whose keys in Redis have a prefix, and its expected counts.
type service struct {
	*cluster
	prefix string
	want   map[string]int64
}

// startService starts the nodes of a service over a Redis.
func startService(t *testing.T, r proctest.Redis, prefix string, args ...string) *service {
	t.Helper()
	c := startOver(t, r, 2, append([]string{"--redis-prefix", prefix,
		"--admin-token", rulesToken}, args...)...)
	return &service{c, prefix, map[string]int64{}}
}

// add counts n events of each key through both nodes, and waits for Redis.
func (s *service) add(n int64, keys ...string) {
	s.T.Helper()
	var ops [2][]string // for each node
	for i, key := range keys {
		ops[i%2] = append(ops[i%2],
			fmt.Sprintf(`{"op":"add","key":%q,"n":%d,"ack":"redis"}`, key, n))
		s.want[key] += n
	}
	for i, list := range ops {
		answer := s.Nodes[i].MustPost("/v1/batch", `{"ops":[`+strings.Join(list, ",")+`]}`)
		if strings.Contains(string(answer), `"error"`) {
			s.T.Errorf("%s: %s", s.prefix, answer)
		}
	}
}

// name returns the name of a key in Redis.
func (s *service) name(key string) string {
	place := twotier.Placement{Partitions: s.Partitions}
	return fmt.Sprintf("%s:{p%d}:default:%s", s.prefix, place.Of(nil, []byte(key)), key)
}

// counts waits until both nodes, and Redis, have the expected counts.
func (s *service) counts(when string) {
	s.T.Helper()
	proctest.UntilNil(s.T, s.prefix+" has its counts "+when, func() error {
		var errs []error
		for key, want := range s.want {
			for i := range 2 {
				a, err := s.Nodes[i].TryCount("window=24h&key=" + key)
				if err != nil || a.Counts[0].Count != want {
					errs = append(errs, fmt.Errorf("node %d, %s: %+v, %w, want %d", i, key, a, err,
						want))
				}
			}
			cells, err := s.Direct.HGetAll(s.T.Context(), s.name(key)).Result()
			sum := int64(0)
			delete(cells, proctest.VersionField)
			for field, text := range cells {
				n, failed := proctest.Events(field, text)
				sum, err = sum+n, errors.Join(err, failed)
			}
			if err != nil || sum != want {
				errs = append(errs, fmt.Errorf("%s: %d, %w, want %d", s.name(key), sum, err, want))
			}
		}
		return errors.Join(errs...)
	})
}

// stored returns the names of all keys in Redis that begin with a prefix.
func stored(t *testing.T, r redis.UniversalClient, prefix string) (names []string) {
	t.Helper()
	var mu sync.Mutex
	collect := func(ctx context.Context, node *redis.Client) error {
		list, err := node.Keys(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, name := range list {
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		return err
	}
	if all, ok := r.(*redis.ClusterClient); ok {
		must.Succeed(t, all.ForEachMaster(t.Context(), collect))
	} else {
		must.Succeed(t, collect(t.Context(), r.(*redis.Client)))
	}
	return names
}

// TestServicesShareARedis runs two services with different prefixes, partitions and rules over one
// server, and over one Redis Cluster. They count the same keys, ban them, reset them, change their
// mode, and lose their data, all without an effect on the other.
func TestServicesShareARedis(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) proctest.Redis{
		"server":  func(t *testing.T) proctest.Redis { return redistest.Start(t) },
		"cluster": func(t *testing.T) proctest.Redis { return redistest.StartCluster(t, 3, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			a := startService(t, r, "tt")
			b := startService(t, r, "tt.b", "--partitions", "31")
			var keys []string
			for i := range 20 {
				keys = append(keys, fmt.Sprint("key-", i))
			}
			a.add(2, keys...)
			b.add(3, keys...)
			a.counts("at first")
			b.counts("at first")
			a.separateRules(b)
			a.losesItsData(b, keys)
			a.ownsItsKeys(b)
		})
	}
}

// separateRules gives both services a first version of the rules, and bans a key in one of them.
func (s *service) separateRules(other *service) {
	s.T.Helper()
	s.putRules(0, 0, banRules)
	s.haveRules(1)
	other.putRules(0, 0, strings.Replace(banRules, "3/24h", "100/24h", 1))
	other.haveRules(1)
	until := s.breach(0, "outlaw")
	s.stillBanned("outlaw", until, "in its service")
	if v := other.asks(1, "outlaw", 1); !v.Allowed || len(v.Bans) > 0 {
		s.T.Errorf("in the other service: %+v", v)
	}
	s.addDistinct(0, "receivers", 3, "a", "b")
	if v := other.addDistinct(0, "receivers", 3, "c"); v.Counts[0].Count != 1 {
		s.T.Errorf("distinct values in the other service: %+v", v)
	}
}

// wipe deletes all keys in Redis that begin with a prefix, those of one partition at once.
func (s *service) wipe(prefix string) {
	s.T.Helper()
	parts := map[string][]string{}
	for _, name := range stored(s.T, s.Direct, prefix) {
		part, _, _ := strings.Cut(name, "}")
		parts[part] = append(parts[part], name)
	}
	for _, names := range parts {
		must.Succeed(s.T, s.Direct.Del(s.T.Context(), names...).Err())
	}
}

// losesItsData deletes all keys of one service in Redis, as an eviction might. Its nodes restore
// their counts from memory. Then Redis loses all data, and both do.
func (s *service) losesItsData(other *service, keys []string) {
	s.T.Helper()
	before := stored(s.T, s.Direct, other.prefix+":")
	s.wipe(s.prefix + ":")
	s.add(1, keys...)
	s.counts("after a loss")
	for _, name := range before {
		if n, err := s.Direct.Exists(s.T.Context(), name).Result(); n != 1 || err != nil {
			s.T.Errorf("%s is gone after a loss of the other service: %v", name, err)
		}
	}
	other.counts("after a loss of the other")
	s.wipe("")
	for _, one := range []*service{s, other} {
		one.add(1, keys...)
		one.counts("after Redis lost all data")
	}
}

// ownsItsKeys checks that each key in Redis belongs to one of the services, and that all keys
// expire but the agreement, the rules, and the states of partitions.
func (s *service) ownsItsKeys(other *service) {
	s.T.Helper()
	owned := map[string]int{}
	for _, name := range stored(s.T, s.Direct, "") {
		prefix, kind, _ := strings.Cut(name, ":")
		owned[prefix]++
		if prefix != s.prefix && prefix != other.prefix {
			s.T.Errorf("%s belongs to no service", name)
		}
		ttl, err := s.Direct.PTTL(s.T.Context(), name).Result()
		if ttl == -2 {
			continue // it has gone since the scan
		}
		keeps := kind == "meta" || kind == "rules" || strings.HasSuffix(kind, "}!s")
		if err != nil || keeps != (ttl < 0) {
			s.T.Errorf("%s lives for %v, %v", name, ttl, err)
		}
	}
	if owned[s.prefix] == 0 || owned[other.prefix] == 0 {
		s.T.Errorf("keys by prefix: %v", owned)
	}
}
