package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/retry"
)

// victim is the index of the node that is killed. The page of node 0 stays.
const victim = 1

// ruleLimit is the limit of Rule.
const ruleLimit = "10/10s"

// Document returns the document of rules with [Rule] in a state: off, shadow or on.
func Document(state string) string { return document("state: " + state) }

func document(fields string) string {
	return fmt.Sprintf("rules:\n  - {name: %s, namespace: %s, limits: %s, %s}\n", Rule, Namespace,
		ruleLimit, fields)
}

func (s *Story) makeChapters() []chapter {
	address := strings.TrimPrefix(Attacker, "ip:")
	return []chapter{
		{Title{"traffic", "Logins, and an attacker"},
			fmt.Sprintf("Thousands of addresses log in now and then. One of them, %s, tries "+
				"twenty passwords a second. Rule %s (%s) is off: nobody is refused.", address, Rule,
				ruleLimit),
			"Keys, Busiest: the attacker is high in the list. Decisions: everything is allowed.",
			"keys-title",
			s.rule("state: off")},
		{Title{"shadow", "The rule in shadow"},
			"The rule judges, and refuses nothing: its effect shows before it hurts anybody.",
			"Keys, Would be refused: the attacker alone. Decisions: refused in shadow rises.",
			"shadowed-title",
			s.rule("state: shadow")},
		{Title{"on", "The rule is on"},
			fmt.Sprintf("The attacker gets %s, through whichever node. Nobody else notices.",
				strings.Replace(ruleLimit, "/", " logins in ", 1)),
			"Decisions: refused rises. Rules: the versions, and what login refused.",
			"decisions-title",
			s.rule("state: on")},
		{Title{"ban", "A ban"},
			"With ban: 1m, a key that is refused stays refused for a minute. Every node sees the " +
				"ban.",
			"Bans: the attacker, and until when. The ban can be lifted there.", "bans-title",
			s.ban},
		{Title{"kill", "A node is killed"},
			"Node b counts events that are acknowledged once they are in the store. Then it is " +
				"killed: it hands over nothing and does not say goodbye. The others go on at once.",
			"Members: b does not answer, and is gone a few seconds later. Events: b is gone.",
			"cluster-title", s.kill},
		{Title{"back", "The node is back"},
			"Node b starts again, with empty memory. It takes over its keys, and reads their " +
				"counts from the store.",
			"Members: b owns partitions again. Events: b has started.", "cluster-title", s.back},
	}
}

// rule returns the act that puts the rule into force, with some fields, and then observes the
// logins.
func (s *Story) rule(fields string) act {
	return func(ctx context.Context) (func() string, error) {
		if err := s.putRule(ctx, fields); err != nil {
			return nil, err
		}
		unban := fmt.Sprintf(`{"rule":%q,"key":%q}`, Rule, Attacker)
		err := s.send(ctx, 0, http.MethodPost, "/v1/unban", unban, &struct{}{})
		return s.observe(), err
	}
}

// putRule puts the rule into force on all nodes.
func (s *Story) putRule(ctx context.Context, fields string) error {
	if err := s.startVictim(ctx); err != nil {
		return err
	}
	var made struct{ Version int64 }
	if err := s.send(ctx, 0, http.MethodPut, "/v1/rules", document(fields),
		&made); err != nil {
		return err
	}
	for node := range s.servers {
		if err := poll(ctx, func() (bool, error) {
			var seen struct {
				Version int64 `json:"rules_version"` // in force there
			}
			err := s.send(ctx, node, http.MethodGet, "/v1/bans?rule="+Rule, "", &seen)
			return err == nil && seen.Version >= made.Version, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// pollTimeout bounds how long a chapter waits for an effect, and pollPause is the time between two
// looks.
const (
	pollTimeout = 30 * time.Second
	pollPause   = 50 * time.Millisecond
)

// poll waits until a condition holds.
func poll(ctx context.Context, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	for {
		ok, err := holds()
		if ok {
			return nil
		}
		if !retry.Pause(ctx, pollPause) {
			return errors.Join(errors.New("waited in vain"), err)
		}
	}
}

// maxAnswer bounds an answer in bytes.
const maxAnswer = 256 << 10

// send makes a request of a node that clients don't make, and decodes the answer. The body is JSON,
// or YAML if the method is PUT.
func (s *Story) send(ctx context.Context, node int, method, path, body string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.servers[node]+path,
		strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPut {
		request.Header.Set("Content-Type", "application/yaml")
		request.Header.Set("If-Match", "*")
	}
	request.Header.Set("Authorization", "Bearer "+s.opt.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answered %s: %s", request.URL.Host, response.Status, text)
	}
	return json.Unmarshal(text, answer)
}

// observe returns a function that describes the logins since.
func (s *Story) observe() func() string {
	before := s.traffic.Stats()
	return func() string {
		now := s.traffic.Stats()
		return fmt.Sprintf("%s: %s. The others: %s.", strings.TrimPrefix(Attacker, "ip:"),
			describeLogins(before.Attacker, now.Attacker),
			describeLogins(before.Others, now.Others))
	}
}

func describeLogins(before, now Logins) string {
	refused := now.Refused - before.Refused
	text := fmt.Sprintf("%d logins, %d refused", now.Allowed-before.Allowed+refused, refused)
	if shadow := now.Shadow - before.Shadow; shadow > 0 {
		text += fmt.Sprintf(", %d would have been", shadow)
	}
	return text
}

// ban adds a ban to the rule, and waits until the attacker is banned.
func (s *Story) ban(ctx context.Context) (func() string, error) {
	if err := s.putRule(ctx, "ban: 1m"); err != nil {
		return nil, err
	}
	path := "/v1/bans?" + url.Values{"rule": {Rule}, "key": {Attacker}}.Encode()
	var until int64
	if err := poll(ctx, func() (bool, error) {
		var answer struct{ Bans []struct{ Until int64 } }
		err := s.send(ctx, 0, http.MethodGet, path, "", &answer)
		if err == nil && len(answer.Bans) > 0 {
			until = answer.Bans[0].Until
		}
		return until > 0, err
	}); err != nil {
		return nil, err
	}
	logins := s.observe()
	return func() string {
		return fmt.Sprintf("Banned until %s. Since then, %s",
			time.UnixMilli(until).Format(time.TimeOnly), logins())
	}, nil
}

// proof is a key whose count must survive: counted events were acknowledged.
type proof struct {
	key     string
	counted int64
	made    int // keys so far
	killed  bool
}

// How many events of the proof are counted before the kill, and again after each change.
const (
	proofBefore = 200
	proofAfter  = 100
)

// kill counts through the victim, kills it, and goes on counting through another node.
func (s *Story) kill(ctx context.Context) (func() string, error) {
	if err := s.startVictim(ctx); err != nil {
		return nil, err
	}
	s.proof.made++
	s.proof.key = s.opt.Cluster.KeyOf(victim, fmt.Sprintf("proof:%d:", s.proof.made))
	s.proof.counted = 0
	if err := s.countProof(ctx, victim, proofBefore); err != nil {
		return nil, err
	}
	if err := s.opt.Cluster.Kill(victim); err != nil {
		return nil, err
	}
	s.proof.killed = true
	if err := s.countProof(ctx, 0, proofAfter); err != nil {
		return nil, err
	}
	reports, err := s.reports(ctx)
	text := fmt.Sprintf("%s: %d counted before the kill, %d after it. %s.", s.proof.key,
		proofBefore, proofAfter, reports)
	return func() string { return text }, err
}

// back starts the victim, and counts through it. If it runs, it is killed first.
func (s *Story) back(ctx context.Context) (func() string, error) {
	if !s.proof.killed {
		if _, err := s.kill(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.startVictim(ctx); err != nil {
		return nil, err
	}
	if err := s.countProof(ctx, victim, proofAfter); err != nil {
		return nil, err
	}
	reports, err := s.reports(ctx)
	text := fmt.Sprintf("%s: %d counted in all, the last %d through %s. %s.", s.proof.key,
		s.proof.counted, proofAfter, s.names[victim], reports)
	return func() string { return text }, err
}

// startVictim starts the victim if it was killed, and waits until it is ready.
func (s *Story) startVictim(ctx context.Context) error {
	if !s.proof.killed {
		return nil
	}
	if err := s.opt.Cluster.Start(ctx, victim); err != nil {
		return err
	}
	s.proof.killed = false
	return poll(ctx, func() (bool, error) {
		var v struct{ Members []struct{ State string } }
		err := s.send(ctx, 0, http.MethodGet, "/v1/cluster", "", &v)
		alive := 0
		for _, m := range v.Members {
			if m.State == "alive" {
				alive++
			}
		}
		return alive == len(s.names), err
	})
}

// countProof counts n events of the proof through a node, in single requests that wait for the
// store.
func (s *Story) countProof(ctx context.Context, node, n int) error {
	add := client.Op{Add: &client.AddRequest{Key: s.proof.key, Ack: client.AckRedis}}
	results, err := s.traffic.nodes[node].Batch(ctx, slices.Repeat([]client.Op{add}, n))
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Err != nil {
			return fmt.Errorf("node %s: %w", s.names[node], r.Err)
		}
	}
	s.proof.counted += int64(len(results))
	return nil
}

// reports describes the count of the proof at each node. It is an error if one of them is wrong.
func (s *Story) reports(ctx context.Context) (text string, err error) {
	var said []string
	for node, name := range s.names {
		if node == victim && s.proof.killed {
			said = append(said, name+" is dead")
			continue
		}
		n, failed := count(ctx, s.traffic.nodes[node], s.proof.key)
		if failed == nil && n != s.proof.counted {
			failed = fmt.Errorf("node %s reports %d, want %d", name, n, s.proof.counted)
		}
		err = errors.Join(err, failed)
		said = append(said, fmt.Sprintf("%s reports %d", name, n))
	}
	return strings.Join(said, ", "), err
}
