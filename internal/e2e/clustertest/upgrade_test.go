package clustertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

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
	for i, at := range []struct{ file, what string }{
		{"internal/peer/wire.go", `(?m)^const version = \d+$`},
		{"ring/table.go", `(?m)^const Protocol = \d+$`},
	} {
		text := must.Read(t, filepath.Join(dir, filepath.FromSlash(at.file)))
		if found[i] = regexp.MustCompile(at.what).FindString(text); found[i] == "" {
			t.Fatalf("%s in %s has no %s", at.file, dir, at.what)
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

// upgradeCounting lets clients count meanwhile. Nothing is lost and no limit is exceeded.
func upgradeCounting(t *testing.T, old *proctest.Program, rolling bool) {
	c := startWith(t, old, 3)
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
			c.replaceAll()
			tr = c.Traffic()
		}
		tr.Accept(200)
		tr.Stop()
		orderly(t, tr, c.Settle("9 upgrade "+to.name, 0))
	}
}

// upgradeWithBans bans keys while nodes of both versions run, so that one version is asked and the
// other decides. Every node of either version refuses each ban until it is lifted, and earlier
// counts stay. Nodes that don't support bans refuse rules with bans.
func upgradeWithBans(t *testing.T, old *proctest.Program, rolling bool) {
	c := startWith(t, old, 3, "--admin-token", rulesToken)
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
	status, text, _ := admin(t, c.Nodes[0], "PUT", "/v1/rules", banRules, "Content-Type",
		"application/yaml", "If-Match", `"0"`)
	if status != 200 {
		if status != 422 || !strings.Contains(text, `unknown key \"ban\"`) {
			t.Fatalf("rules with bans at a node that knows none: %d %s", status, text)
		}
		c.Program = program
		c.replaceAll()
		c.putRules(0, 0, banRules)
	}
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

// replaceAll stops all nodes and then starts them again.
func (c *cluster) replaceAll() {
	c.T.Helper()
	all := c.Running()
	for _, i := range all {
		c.Stop(i)
	}
	for _, i := range all {
		c.Serve(i)
	}
	c.Settled()
}
