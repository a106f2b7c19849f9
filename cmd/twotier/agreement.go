package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/reload"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/rulebook"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/strictyaml"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/redisstore"
)

// dataDigest returns a digest of the namespaces that have hash tags and of the prefix of keys in
// Redis, on which all nodes must agree as on partitions and seed. It is 0 for the defaults.
func dataDigest(place twotier.Placement, prefix string) uint64 {
	h := fnv.New64a()
	none := h.Sum64()
	if place.HashTags != nil {
		fmt.Fprintf(h, "hash tags: %s\n", place.HashTags)
	}
	if prefix != redisstore.DefaultPrefix {
		fmt.Fprintf(h, "prefix: %s\n", prefix)
	}
	if h.Sum64() == none {
		return 0
	}
	return h.Sum64() >> 11 // 53 bits, which a JSON number holds exactly
}

// startAgreement keeps the settings that all users of a Redis must share in Redis, until disagree
// is called.
func (s *server) startAgreement() {
	ctx, cancel := context.WithCancel(context.Background())
	s.disagree = func() { cancel(); s.agreeing.Wait() }
	if s.store.redis != nil {
		s.adoptHoldSecret()
		s.agreeing.Go(func() { s.runAgree(ctx) })
	}
}

// adoptHoldSecret seals the ids of holds by the secret in Redis.
func (s *server) adoptHoldSecret() {
	secret := s.store.redis.HoldSecret()
	if secret != nil && !bytes.Equal(secret, s.holds.Sealer.Secret()) {
		s.holds.Sealer.SetSecret(secret)
	}
}

// agreeingStore keeps the settings that its users must share. redisstore.Store implements it.
type agreeingStore interface {
	EnsureAgreement(ctx context.Context) error
	Health() redisstore.Health
}

// runAgree makes sure of the agreement every second, and ends the server once its hash seed gave
// way to an older one.
func (s *server) runAgree(ctx context.Context) {
	for retry.Pause(ctx, redisstore.AgreeEvery) {
		if err := s.ensureAgreement(ctx, s.store.redis); err != nil {
			s.outdated <- err
			return
		}
		s.adoptHoldSecret()
	}
}

// ensureAgreement makes sure of the agreement once. It returns an error that wraps ErrOlderSeed if
// this process must be started again, and logs other errors.
func (s *server) ensureAgreement(ctx context.Context, store agreeingStore) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
	defer cancel()
	err := store.EnsureAgreement(ctx)
	if err != nil { // the flushes report it too
		s.log.Debug("can't read what all users of Redis must agree on", "error", err)
	}
	// An exchange under way may have replaced the error in the store's health, and a probe may have
	// met it there.
	for _, err := range []error{err, store.Health().Err} {
		if errors.Is(err, redisstore.ErrOlderSeed) {
			return err
		}
	}
	return nil
}

// addRoster makes the part that lists the nodes that use the same Redis. Without Redis, no other
// process uses the same data.
func (s *server) addRoster() {
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

// addRules makes the keeper of the rules, which puts them into the book. It offers the keeper the
// configured rules, from a list in the configuration file or from a separate file, now and whenever
// they change.
func (s *server) addRules() error {
	s.rules = rulebook.New(rulebook.Options{Store: s.store.rules, Book: &s.book,
		Check: s.store.ladders.CheckWindows, InForce: func(doc *rules.Document) {
			s.warnings.Replace(warning.Rules, lint.Rules(doc, s.store.ladders))
		}, Joining: true, Timeout: s.cfg.RedisTimeout, Logger: s.log})
	switch {
	case s.cfg.RuleList != nil:
		return s.addRuleList()
	case s.cfg.Rules != "":
		return s.addRuleFile()
	}
	return nil
}

// addRuleList offers the list in the configuration file, now and whenever it changes. Mistakes are
// reported with their place in that file.
func (s *server) addRuleList() error {
	var offered []byte
	offerList := func(list *strictyaml.Node) error {
		doc, err := rules.ReadList(s.cfg.File, list)
		if err != nil {
			return err
		}
		text, err := rules.Text(list)
		if err != nil {
			return fmt.Errorf("%s: %w", s.cfg.File, err)
		}
		return s.offerRules(s.cfg.File, doc, text, &offered)
	}
	if err := offerList(s.cfg.RuleList); err != nil {
		return err
	}
	if info, err := os.Stat(s.cfg.File); err != nil || !info.Mode().IsRegular() {
		return err // a pipe, which can't be read again
	}
	return s.files.Add(reload.Source{Name: "rules in --config", Paths: []string{s.cfg.File},
		Apply: func(contents [][]byte) error {
			list, err := config.ReadRules(s.cfg.File, contents[0])
			switch {
			case err != nil:
				return err
			case list == nil:
				return fmt.Errorf("%s: there is no list of rules in it any more; write rules: [] "+
					"to have none, or restart", s.cfg.File)
			}
			return offerList(list)
		}})
}

// addRuleFile offers the file of rules, now and whenever it changes.
func (s *server) addRuleFile() error {
	var offered []byte
	return s.files.Add(reload.Source{Name: "--rules", Paths: []string{s.cfg.Rules},
		Apply: func(contents [][]byte) error {
			doc, err := rules.Read(s.cfg.Rules, contents[0])
			if err != nil {
				return err
			}
			return s.offerRules(s.cfg.Rules, doc, contents[0], &offered)
		}})
}

// offerRules offers rules from a file, unless their text is the one that was offered last, as when
// other settings in the file have changed, or a mistake was taken back: rules may have changed by
// other means meanwhile.
func (s *server) offerRules(path string, doc *rules.Document, text []byte, last *[]byte) error {
	again := *last != nil
	if err := s.store.ladders.CheckWindows(doc); err != nil || again && bytes.Equal(text, *last) {
		return err
	}
	author := fmt.Sprintf("file %s of node %s", filepath.Base(path), s.cfg.Node)
	if err := s.rules.Offer(text, author, again); err != nil {
		return err
	}
	*last = text
	return nil
}

// rulesInForce returns the version of the rules in force and its author, or 0 while it is unknown.
func (s *server) rulesInForce() (version int64, who string) {
	v, _, _ := s.rules.Current()
	return v.Number, v.Who
}
