package clustertest

import (
	"archive/zip"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

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
