package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/redisstore"
)

// addRoster makes the part that lists the nodes that use the same Redis. Without Redis, no other
// process uses the same data.
func (s *server) addRoster(opt *node.Options) {
	if s.store.redis == nil {
		return
	}
	list := roster.Options{Store: listedNodes{s.store.redis.Nodes()}, Report: s.warnOfNodes,
		Timeout: s.cfg.RedisTimeout, Logger: s.log}
	name := s.cfg.Node + "-" + rand.Text()[:8]
	if s.ring != nil {
		list.Gossip, name = s.ring, s.ring.Name()
	}
	list.Self = func() roster.Entry {
		return roster.Entry{Name: name, ID: s.cfg.Node, Gossip: s.gossipAddr(),
			Address: cmp.Or(s.cfg.Advertise, s.http.Addr().String()),
			InStore: s.node.Mode() == cluster.Redis}
	}
	s.roster = roster.New(list)
	opt.Roster = s.roster
}

// listedNodes keeps the entries of processes in Redis as JSON. It implements roster.Store.
type listedNodes struct{ records *redisstore.Nodes }

// RenewEntry implements roster.Store. It skips an entry that another release has written in another
// form.
func (l listedNodes) RenewEntry(ctx context.Context, e roster.Entry,
	lease time.Duration) (all []roster.Entry, err error) {
	text, _ := json.Marshal(e) // a struct of strings always marshals
	records, err := l.records.Renew(ctx, e.Name, string(text), lease)
	for _, r := range records {
		e := roster.Entry{Name: r.Name, Until: r.Until, Left: r.Left}
		if json.Unmarshal([]byte(r.Text), &e) == nil {
			all = append(all, e)
		}
	}
	return all, err
}

// RemoveEntries implements roster.Store.
func (l listedNodes) RemoveEntries(ctx context.Context, names ...string) error {
	return l.records.Remove(ctx, names...)
}

// warnOfNodes replaces the warnings about processes that use the same data and are not members of
// this node's cluster.
func (s *server) warnOfNodes(strangers []roster.Entry) {
	list := make([]warning.Warning, len(strangers))
	for i := range strangers {
		list[i] = warning.Warning{Code: warning.UnmetNode, At: "node " + strangers[i].String(),
			Reason: fmt.Sprintf("it uses the same Redis and --redis-prefix %s, and is no member "+
				"of the cluster of this node: both decide about the same keys, so limits are "+
				"exceeded", s.cfg.RedisPrefix),
			Instead: "another --redis-prefix for one of the clusters; if they are one, --join " +
				"with all nodes, one --cluster-secret, and --gossip open for TCP and UDP"}
	}
	s.warnings.Replace(warning.Nodes, list)
}
