package zones_test

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/internal/zones"
)

// TestBuiltInIsTheToolchains compares the program's database with that of the Go distribution.
func TestBuiltInIsTheToolchains(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	must.Succeed(t, err)
	dir := filepath.Join(strings.TrimSpace(string(root)), "lib", "time")
	script, err := os.ReadFile(filepath.Join(dir, "update.bash"))
	if err != nil {
		t.Skip("this Go distribution has no database: ", err)
	}
	found := regexp.MustCompile(`(?m)^DATA=(\d{4}[a-z]+)$`).FindSubmatch(script)
	if found == nil || string(found[1]) > zones.BuiltIn {
		t.Fatalf("Go has %q, the program %s: copy zoneinfo.zip from %s", found, zones.BuiltIn, dir)
	}
	files, err := os.ReadFile(filepath.Join(dir, "zoneinfo.zip"))
	must.Succeed(t, err)
	if string(found[1]) == zones.BuiltIn && string(files) != zones.BuiltInFiles {
		t.Errorf("zoneinfo.zip is not that of Go, whose version is the same")
	}
}

// builtIn returns a file of the program's database.
func builtIn(t testing.TB, name string) []byte {
	t.Helper()
	files, err := zip.NewReader(strings.NewReader(zones.BuiltInFiles),
		int64(len(zones.BuiltInFiles)))
	must.Succeed(t, err)
	data, err := fs.ReadFile(files, name)
	must.Succeed(t, err)
	return data
}

// machine is a database of a machine in which Lisbon has the zone of another city.
type machine struct {
	version, spelled, city string
}

// write writes the database, and returns its directory.
func (m machine) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if m.spelled != "" {
		name, text, _ := strings.Cut(m.spelled, ":")
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name),
			fmt.Appendf(nil, text, m.version), 0o600))
	}
	if m.city != "" {
		must.Succeed(t, os.Mkdir(filepath.Join(dir, "Europe"), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "Europe", "Lisbon"), builtIn(t, m.city),
			0o600))
	}
	return dir
}

// TestNewerDatabaseWins draws machines with databases of older, equal, newer and unknown versions:
// the newest one decides, and the program's if none is newer or it lacks the zone.
func TestNewerDatabaseWins(t *testing.T) {
	start := seed.First()
	random := rand.New(rand.NewPCG(start, 0))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	newer := 0
	for range 300 {
		version, city := zones.BuiltIn, "Europe/Lisbon"
		var dirs []string
		var machines []machine
		for range random.IntN(4) {
			m := machine{pick("1999a", "2025b", zones.BuiltIn, "2031d", "2031za", "2032a"),
				pick("", "tzdata.zi:# version %s\n# more\n", "+VERSION:%s\n",
					"tzdata.zi:version %s\n",
					"+VERSION:%s.dev\n"), pick("", "Pacific/Auckland", "Asia/Tokyo")}
			machines, dirs = append(machines, m), append(dirs, m.write(t), "", "/nonexistent")
			known := strings.HasSuffix(m.spelled, "more\n") || m.spelled == "+VERSION:%s\n"
			if known && m.version > version {
				version, city = m.version, pick(m.city)
				newer++
			}
		}
		if city == "" {
			city = "Europe/Lisbon"
		}
		got, used, err := zones.LoadFrom("Europe/Lisbon", dirs...)
		must.Succeed(t, err)
		want, err := time.LoadLocationFromTZData(city, builtIn(t, city))
		must.Succeed(t, err)
		_, offset := at.In(got).Zone()
		if _, o := at.In(want).Zone(); o != offset || used != version || got.String() !=
			"Europe/Lisbon" {
			t.Fatalf("seed %d: %q: %v at %d s, version %s; want %s, version %s", start, machines,
				got,
				offset, used, city, version)
		}
	}
	if newer < 30 {
		t.Errorf("seed %d: only %d newer databases", start, newer)
	}
}

// TestZoneNames loads every zone of the program's database, and refuses other names.
func TestZoneNames(t *testing.T) {
	files, err := zip.NewReader(strings.NewReader(zones.BuiltInFiles),
		int64(len(zones.BuiltInFiles)))
	must.Succeed(t, err)
	for _, f := range files.File {
		if zone, _, err := zones.LoadFrom(f.Name); err != nil || zone.String() != f.Name {
			t.Errorf("%s: %v, %v", f.Name, zone, err)
		}
	}
	if len(files.File) < 400 {
		t.Errorf("%d zones", len(files.File))
	}
	for _, name := range []string{"Europe", "Europe/Nowhere", "../etc/passwd", "/etc/passwd", "."} {
		if _, _, err := zones.LoadFrom(name, "/usr/share/zoneinfo"); err == nil {
			t.Errorf("%s is a zone", name)
		}
	}
	for _, name := range []string{"", "UTC"} {
		if zone, err := zones.Load(name); err != nil || zone != time.UTC {
			t.Errorf("%q: %v, %v", name, zone, err)
		}
	}
	if zones.Version() < zones.BuiltIn {
		t.Errorf("version %s is in use", zones.Version())
	}
}
