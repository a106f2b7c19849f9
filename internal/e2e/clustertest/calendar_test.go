package clustertest

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// noonZone returns a time zone in which it is between half past eleven and half past twelve, and
// the moment at which its day began, half a day ago.
func noonZone(now time.Time) (name string, midnight time.Time) {
	ahead := 12 - now.Add(30*time.Minute).UTC().Hour() // hours east of Greenwich
	// The names of POSIX have the opposite sign.
	name = fmt.Sprintf("Etc/GMT%+d", -ahead)
	day := now.Add(time.Duration(ahead) * time.Hour).UTC().Truncate(24 * time.Hour)
	return name, day.Add(-time.Duration(ahead) * time.Hour)
}

// TestCalendarWindowsOfACluster gives the key of each of three nodes events of yesterday, and asks
// all nodes for a quota per day: in memory, where most requests are forwarded, and in Redis mode.
// The verdicts are the same. An acquire over the keys of all nodes is all or nothing.
func TestCalendarWindowsOfACluster(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken)
	zone, midnight := noonZone(time.Now())
	limit := fmt.Sprintf(`"limits":[{"window":"day","zone":%q,"max":4}]`, zone)
	for _, mode := range []string{"memory", "redis"} {
		var keys, checks []string
		for i := range 3 {
			key := c.keyOf(i, mode)
			keys = append(keys, key)
			checks = append(checks, fmt.Sprintf(`{"key":%q,%s}`, key, limit))
			c.count(i+1, "default", key, 100, midnight.Add(-time.Second))
		}
		for _, key := range keys {
			for i := range 5 {
				c.acquireToday(i%3, key, limit, int64(min(i+1, 4)), i < 4, midnight)
			}
		}
		extra := c.keyOf(0, mode+"-extra")
		all := `{"checks":[` + strings.Join(checks[1:], ",") +
			fmt.Sprintf(`,{"key":%q,%s}]}`, extra, limit)
		if a := c.ask(1, all); a.Allowed {
			t.Errorf("%s: an acquire over full quotas: %+v", mode, a)
		}
		query := fmt.Sprintf("key=%s&window=day@%s", extra, strings.ReplaceAll(zone, "+", "%2B"))
		if a, err := c.Nodes[2].TryCount(query); err != nil || a.Counts[0].Count != 0 {
			t.Errorf("%s: counted %+v, %v", mode, a, err)
		}
		c.modeOf(0, "redis")
	}
}

// acquireToday acquires one event of a key through node i, and judges the answer.
func (c *cluster) acquireToday(i int, key, limit string, count int64, allowed bool,
	midnight time.Time) {
	c.T.Helper()
	a := c.ask(i, fmt.Sprintf(`{"key":%q,%s}`, key, limit))
	until := time.Until(midnight.Add(24 * time.Hour)).Milliseconds()
	l := a.Limits[0]
	if a.Allowed != allowed || l.Count != count || l.Start != midnight.UnixMilli() ||
		l.End != midnight.Add(24*time.Hour).UnixMilli() ||
		!allowed && (a.Retry < until-1000 || a.Retry > until+10_000) {
		c.T.Errorf("%s through node %d: %+v, want allowed %v, %d events", key, i, a, allowed, count)
	}
}

// ask sends an acquire to node i.
func (c *cluster) ask(i int, body string) (a struct {
	proctest.Answer
	Limits []struct{ Count, Start, End int64 }
}) {
	c.T.Helper()
	if err := json.Unmarshal(c.Nodes[i].MustPost("/v1/acquire", body), &a); err != nil {
		c.T.Fatal(err)
	}
	return a
}

// TestMachinesWithOtherZones starts nodes on machines on which Lisbon has the zone of Auckland: in
// a database of an old release, of none, and of one that is newer than the program's. All count the
// same day but the last, and each node warns of it while it is a member.
func TestMachinesWithOtherZones(t *testing.T) {
	t.Parallel()
	c := newCluster(t, redistest.Start(t))
	loopback := c.Place
	c.Place = func(i int) proctest.Place {
		place := loopback(i)
		version := []string{"# version 1999a\n", "# none\n", "# version 2099a\n"}[i]
		place.Options.Env = []string{"ZONEINFO=" + machineZones(t, version)}
		return place
	}
	c.Grow(3)
	starts := make([]string, 3)
	for i := range starts {
		_, body := c.Nodes[i].Get("/v1/count?key=k" + strconv.Itoa(i) +
			"&window=day@Europe/Lisbon")
		_, starts[i], _ = strings.Cut(string(body), `"start":`)
		starts[i], _, _ = strings.Cut(starts[i], ",")
	}
	if starts[0] == "" || starts[1] != starts[0] || starts[2] == starts[0] {
		t.Errorf("the days start at %v", starts)
	}
	differ := func(i int) string {
		_, body := c.Nodes[i].Get("/metrics")
		_, n, _ := strings.Cut(string(body), `twotier_warnings{code="zones-differ"} `)
		n, _, _ = strings.Cut(n, "\n")
		return n
	}
	for i := range starts {
		proctest.Until(t, "a node warns of the other release", func() bool {
			return differ(i) == "1"
		})
	}
	c.Stop(2)
	for i := range 2 {
		proctest.Until(t, "the warning ends", func() bool { return differ(i) == "" })
		log := c.Nodes[i].Log.String()
		if strings.Count(log, "warning=zones-differ") != 1 ||
			!strings.Contains(log, `at="nodes n2"`) {
			t.Errorf("node %d logged %s", i, log)
		}
	}
}

// machineZones returns a database whose tzdata.zi begins with a text, and whose only zone is that
// of Auckland under the name of Lisbon.
func machineZones(t *testing.T, head string) string {
	t.Helper()
	dir := t.TempDir()
	files, err := zip.OpenReader(filepath.Join("..", "..", "zones", "zoneinfo.zip"))
	must.Succeed(t, err)
	defer files.Close()
	zone, err := fs.ReadFile(files, "Pacific/Auckland")
	must.Succeed(t, err)
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "Europe"), 0o700))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "Europe", "Lisbon"), zone, 0o600))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "tzdata.zi"), []byte(head), 0o600))
	return dir
}
