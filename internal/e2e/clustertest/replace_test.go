package clustertest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestStartTogether starts all nodes of a cluster at the same time over an empty Redis. Each knows
// the gossip addresses of all. They become one cluster, which places keys by the seed in Redis, has
// one version of the rules that all of them brought, and counts as one.
func TestStartTogether(t *testing.T) {
	t.Parallel()
	const nodes = 4
	server := redistest.Start(t)
	rules := must.File(t, "rules.yaml", "rules: [{name: login, limits: [5/1m]}]\n")
	var addresses []string
	for range nodes { // on separate hosts: a free port could be taken meanwhile
		addresses = append(addresses, proctest.Host()+":7946")
	}
	c := newCluster(t, server)
	started, failed := [nodes]*proctest.Process{}, [nodes]error{}
	var starting sync.WaitGroup
	for i, own := range addresses {
		starting.Go(func() {
			started[i], failed[i] = program.TryServe(t,
				proctest.Options{Env: []string{"TWOTIER_HASH_SEED="}}, "--node", fmt.Sprint("n", i),
				"--redis", server.URL(), "--gossip", own, "--join", strings.Join(addresses, ","),
				"--rules", rules)
		})
	}
	starting.Wait()
	for i, p := range started {
		must.Succeed(t, failed[i])
		c.Nodes[i] = p
	}
	c.Settled()
	seed, err := server.Do("HGET", "tt:meta", "hash-seed").Text()
	must.Succeed(t, err)
	for i, p := range c.Nodes {
		var v struct {
			HashSeed json.Number `json:"hash_seed"`
		}
		must.Succeed(t, p.Ask("/v1/cluster?owners=true", "", &v))
		if version := p.Metric("twotier_rules_version", ""); v.HashSeed.String() != seed ||
			version != 1 {
			t.Errorf("node %d has the seed %s, Redis has %s; rules of version %d", i, v.HashSeed,
				seed, version)
		}
		p.MustPost("/v1/add", `{"key":"k"}`)
	}
	for i, p := range c.Nodes {
		if a := p.Count("k", "24h"); a.Counts[0].Count != nodes {
			t.Errorf("node %d: %+v", i, a)
		}
	}
}

// TestFault9ReplacedByTheDocumentedCommands starts the cluster of docs/cluster.md by the commands
// there, and replaces each of its nodes, by SIGTERM and by SIGKILL, and then the same command. The
// second half of the cases has all nodes join at the first one's address. The new node starts as a
// member of the cluster, and no limit is exceeded.
func TestFault9ReplacedByTheDocumentedCommands(t *testing.T) {
	for name, tt := range map[string]struct {
		oneSeed bool
		end     func(s *proctest.Process)
	}{
		"SIGTERM":                {false, func(s *proctest.Process) { s.Stop() }},
		"SIGKILL":                {false, (*proctest.Process).Kill},
		"SIGTERM, join at first": {true, func(s *proctest.Process) { s.Stop() }},
		"SIGKILL, join at first": {true, (*proctest.Process).Kill},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newDocumented(t, tt.oneSeed)
			for i := range c.commands {
				c.start(i)
			}
			for i := range c.commands {
				c.whole()
				u := c.useUp(fmt.Sprint("limit", i, "-"))
				tt.end(c.node(i))
				c.start(i)
				if v, err := c.node(i).Look(); err != nil || len(v.Members) < len(c.commands) {
					t.Errorf("node %d has started and sees %+v, %v", i, v.Members, err)
				}
				u.check()
			}
		})
	}
}

// documentedCluster is the cluster of docs/cluster.md on another loopback address.
type documentedCluster struct {
	t        *testing.T
	env      []string
	commands []documentedCommand

	mu    sync.Mutex
	nodes []*proctest.Process
}

// documentedCommand is a command that starts a node.
type documentedCommand struct {
	listen string
	args   []string
}

var (
	startsNode = regexp.MustCompile(`(?m)^twotier serve (--node \w) --listen (\S+) (--gossip \S+) >`)
	joinsNodes = regexp.MustCompile(`(?m)^export .*TWOTIER_JOIN=(\S+)`)
)

// newDocumented reads the first cluster of the page.
func newDocumented(t *testing.T, oneSeed bool) *documentedCluster {
	t.Helper()
	page := strings.ReplaceAll(must.Read(t, "../../../docs/cluster.md"), "127.0.0.1",
		proctest.Host())
	join := joinsNodes.FindStringSubmatch(page)[1]
	if oneSeed {
		join, _, _ = strings.Cut(join, ",")
	}
	c := &documentedCluster{t: t, env: []string{"TWOTIER_JOIN=" + join,
		"TWOTIER_REDIS=" + redistest.Start(t).URL()}}
	for _, m := range startsNode.FindAllStringSubmatch(page, 3) {
		c.commands = append(c.commands, documentedCommand{m[2],
			strings.Fields(m[1] + " " + m[3])})
	}
	c.nodes = make([]*proctest.Process, len(c.commands))
	return c
}

// start starts a node.
func (c *documentedCluster) start(i int) {
	c.t.Helper()
	p := program.Serve(c.t, proctest.Options{Listen: c.commands[i].listen, Env: c.env},
		c.commands[i].args...)
	c.mu.Lock()
	c.nodes[i] = p
	c.mu.Unlock()
}

// node returns the process that a node is at present.
func (c *documentedCluster) node(i int) *proctest.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i]
}

// whole waits until all nodes see each other alive.
func (c *documentedCluster) whole() {
	c.t.Helper()
	proctest.UntilNil(c.t, "the nodes are one cluster", func() error {
		for _, node := range c.nodes {
			v, err := node.Look()
			if err != nil {
				return err
			}
			for _, m := range v.Members {
				if m.State != "alive" || len(v.Members) != len(c.nodes) {
					return fmt.Errorf("%s sees %+v", node.Listen, v.Members)
				}
			}
		}
		return nil
	})
}

// usedLimit is the limit of the keys that useUp acquires, and usedKeys their number.
const usedLimit, usedKeys = 20, 8

// usage is traffic that uses up limits, at all nodes.
type usage struct {
	t        *testing.T
	replaced atomic.Bool // then each client ends once it has been refused
	running  sync.WaitGroup
	admitted [usedKeys]atomic.Int64 // by key, except those by nodes in place of an owner
}

// useUp acquires keys at all nodes. Redis has each acquire before it is acknowledged.
func (c *documentedCluster) useUp(prefix string) *usage {
	u := &usage{t: c.t}
	for i := range usedKeys * len(c.nodes) {
		u.running.Go(func() { u.acquire(c, i%len(c.nodes), i%usedKeys, prefix) })
	}
	return u
}

// acquire acquires a key at a node.
func (u *usage) acquire(c *documentedCluster, at, key int, prefix string) {
	body := fmt.Sprintf(`{"key":"%s%d","ack":"redis","limits":[{"window":"1h","max":%d}]}`,
		prefix, key, usedLimit)
	for end := time.Now().Add(proctest.Patience); time.Now().Before(end); {
		replaced := u.replaced.Load()
		var answer struct {
			Allowed bool
			Source  string
		}
		switch err := c.node(at).Ask("/v1/acquire", body, &answer); {
		case err != nil:
		case !answer.Allowed && replaced:
			return
		case answer.Allowed && answer.Source != "fallback":
			u.admitted[key].Add(1)
		}
		time.Sleep(100 * time.Millisecond)
	}
	u.t.Errorf("key %d is not used up at node %d", key, at)
}

// check waits until all keys are used up at all nodes. Owners have admitted no more than each
// limit.
func (u *usage) check() {
	u.t.Helper()
	u.replaced.Store(true)
	u.running.Wait()
	for k := range u.admitted {
		if n := u.admitted[k].Load(); n > usedLimit {
			u.t.Errorf("key %d: %d admitted, the limit is %d", k, n, usedLimit)
		}
	}
}

// previous returns the program of the previous commit, or of the commit named by TWOTIER_PREVIOUS,
// and its source.
func previous(t *testing.T) (*proctest.Program, string) {
	t.Helper()
	commit := os.Getenv("TWOTIER_PREVIOUS")
	if commit == "" {
		commit = "HEAD~1"
	}
	top, err := command("", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		t.Skipf("no git history: %v", err)
	}
	top = top[:len(top)-1]
	if _, err := command("", "git", "rev-parse", "--verify", commit+"^{commit}"); err != nil {
		t.Skipf("no git history: %v", err)
	}
	dir := t.TempDir()
	tree := filepath.Join(t.TempDir(), "tree.tar")
	archive := exec.Command("git", "archive", "-o", tree, commit)
	archive.Dir = top
	if out, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := command("", "tar", "-xf", tree, "-C", dir); err != nil {
		t.Fatal(err)
	}
	return proctest.NewProgramFrom(t, dir), dir
}

// protocols returns the versions of the messages between nodes, and of the gossip, in a source
// tree. Nodes with different versions can't form a cluster.
func protocols(t *testing.T, dir string) (found [2]string) {
	t.Helper()
	for i, at := range []struct{ files, what string }{
		{"internal/peer/*.go", `(?m)^const version = \d+$`},
		{"ring/*.go", `(?m)^const Protocol = \d+$`},
	} {
		files, err := filepath.Glob(filepath.Join(dir, at.files))
		must.Succeed(t, err)
		for _, file := range files {
			found[i] += regexp.MustCompile(at.what).FindString(must.Read(t, file))
		}
		if found[i] == "" {
			t.Fatalf("%s in %s has no %s", at.files, dir, at.what)
		}
	}
	return found
}

// TestUpgradeFromThePreviousCommit replaces three nodes of the previous commit by nodes of this
// one, and then goes back, one node after the other. If the two don't speak the same protocol, all
// nodes are stopped before the new ones start, as documented in docs/operations.md.
func TestUpgradeFromThePreviousCommit(t *testing.T) {
	old, source := previous(t)
	rolling := protocols(t, source) == protocols(t, filepath.Join("..", "..", ".."))
	t.Logf("rolling: %v", rolling)
	t.Run("Counts", func(t *testing.T) { upgradeCounting(t, old, rolling) })
	t.Run("Bans", func(t *testing.T) { upgradeWithBans(t, old, rolling) })
}

// startOld starts three nodes of the previous commit.
func startOld(t *testing.T, old *proctest.Program, args ...string) *cluster {
	t.Helper()
	t.Parallel()
	c := newCluster(t, redistest.Start(t), args...)
	c.Program = old
	c.Grow(3)
	return c
}

// upgradeCounting lets clients count meanwhile. Nothing is lost and no limit is exceeded.
func upgradeCounting(t *testing.T, old *proctest.Program, rolling bool) {
	c := startOld(t, old)
	for _, to := range []struct {
		name    string
		program *proctest.Program
	}{{"to this commit", program}, {"back to the previous one", old}} {
		c.Program = to.program
		tr := c.Traffic()
		tr.Accept(200)
		if rolling {
			c.replaceEach(tr)
		} else {
			tr.Stop()
			c.startAgain(c.Stop, 3)
			tr = c.Traffic()
		}
		tr.Accept(200)
		tr.Stop()
		orderly(t, tr, c.Settle("9 upgrade "+to.name, 0))
	}
}

// upgradeWithBans bans keys while nodes of both versions run, so that one version is asked and the
// other decides. Every node of either version refuses each ban until it is lifted, and earlier
// counts stay.
func upgradeWithBans(t *testing.T, old *proctest.Program, rolling bool) {
	c := startOld(t, old, "--admin-token", rulesToken)
	until := map[string]int64{}
	hold := func(when string) {
		t.Helper()
		c.Settled()
		c.haveRules(1)
		for key, end := range until {
			c.stillBanned(key, end, when)
			c.hasEvents("default", key, 2, when)
		}
	}
	ban := func(when string) {
		t.Helper()
		for _, i := range c.Running() {
			key := c.keyOf((i+1)%3, fmt.Sprint(when, "-", i, "-"))
			c.twoOfThree(key)
			until[key] = c.overstep(i, key, "redis")
		}
		hold(when)
	}
	c.putRules(0, 0, banRules)
	c.haveRules(1)
	ban("before")
	for _, to := range []*proctest.Program{program, old} {
		if c.Program = to; !rolling {
			break // from here on all nodes are new
		}
		for _, i := range c.Running() {
			c.Stop(i)
			c.Serve(i)
			hold(fmt.Sprint("replaced ", i))
			if i == 0 {
				ban(fmt.Sprint("mixed", len(until)))
			}
		}
	}
	for key := range until {
		if _, text, _ := admin(t, c.Nodes[2], "POST", "/v1/unban", fmt.Sprintf(
			`{"rule":"login","key":%q}`, key), "Content-Type", "application/json"); !strings.
			Contains(text, `"lifted":true`) {
			t.Errorf("unban %s: %s", key, text)
		}
		if a := c.asks(0, key, 1); !a.Allowed {
			t.Errorf("%s after its ban was lifted: %+v", key, a)
		}
	}
}

// replaceEach restarts one node after the other while clients count.
func (c *cluster) replaceEach(tr *proctest.Traffic) {
	c.T.Helper()
	for _, i := range c.Running() {
		c.Stop(i)
		tr.Accept(100)
		c.Serve(i)
		tr.To(c.Bases()...)
		tr.Accept(100)
		c.Settled()
	}
}
