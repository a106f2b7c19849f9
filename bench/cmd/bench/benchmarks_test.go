package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// overshootLimit is the limit of BenchmarkShared. A counter that learns nothing from the other one
// admits the whole limit again.
const overshootLimit = 2000

// TestPagesOfBenchmarks checks that every command that runs Go benchmarks finds their measurements
// by name and unit, and that its page has a figure in every place.
func TestPagesOfBenchmarks(t *testing.T) {
	programs := t.TempDir()
	for _, c := range []struct {
		args string
		// want lists the expected measurements: a benchmark, its unit, and the bounds of its value.
		want []want
	}{
		{"envoy --count=1 --sizes=duration=1s", []want{
			{"Envoy/service=twotier", "calls/s", 1, 1e9}}},
		{"forward --count=1 --bench=Forward/./adds=50ms", []want{
			{"Forward/way=forwarded/kind=adds/size=200", "forwarded/op", 0.5, 1},
			{"Forward/way=client/kind=adds/size=200", "service-us/op", 0.01, 1e6}}},
		{"growth --bench=Keys=20ms,Cold=1000x --sizes=duration=20ms,max-keys=10000", []want{
			{"Keys/floor/keys=10000", "core-ns/op", 0.1, 1e6},
			{"Keys/add/keys=10000", "counted-B/key", 20, 2000},
			{"Keys/acquire/keys=10000", "core-ns/op", 1, 1e6},
			{"Keys/server/keys=10000", "adds/s", 1, 1e9}, {"Cold", "redis-B/key", 20, 1e4}}},
		{"hot --bench=Hot/1000000$/nodes.3/own=1x --sizes=duration=1s", []want{
			{"Hot/limit=1000000/nodes=3/users=own", "over", 0, 0},
			{"Hot/limit=1000000/nodes=3/users=own", "decisions/s", 1, 1e9}}},
		{"http --count=2 --bench=HTTP/memory/./^keys.1000$=1x --sizes=duration=50ms", []want{
			{"HTTP/store=memory/adds=1/keys=1000", "ratio", 0.01, 100},
			{"HTTP/store=memory/adds=1000/keys=1000", "adds/s", 1, 1e9}}},
		{"interval --bench=Flush/10ms=1x,Shared/10ms=3x,Steady=1x --sizes=duration=1500ms,rate=1000",
			[]want{{"Flush/interval=10ms", "commands/decision", 0.1, 50},
				{"Shared/interval=10ms", "other-p50-ms", 0.01, 1e5},
				{"Shared/interval=10ms", "overshoot", 0, overshootLimit - 1},
				{"Steady", "adds/s", 1, 1e6}}},
		{"loss --count=1 --bench=Kill/redis=1x --sizes=duration=300ms,rate=2000", []want{
			{"Kill/setting=ack=redis", "acknowledged", 1, 1e6},
			{"Kill/setting=mode=redis", "lost", 0, 0}}},
		{"memory --bench=Bytes/thirty=1x,Pauses=3x --sizes=one=200,thirty=200,every=20,max-keys=50000",
			[]want{{"Bytes/events=thirty/way=twotier", "counted-B/key", 20, 5000},
				{"Bytes/events=thirty/way=zset-lua", "redis-B/key", 30, 1e5},
				{"Bytes/events=thirty/way=hash-lua", "redis-keys/key", 0.9, 3},
				{"Pauses", "resident-B", 50_000 * 20, 1e9}, {"Pauses", "p50-us", 0.1, 1e6}}},
		{"quietflush --count=1 --sizes=duration=1s", []want{
			{"QuietFlush/keys=uniform", "p99-ratio", 0, 1e6},
			{"QuietFlush/keys=distinct", "acquires/s", 1, 1e6},
			{"QuietFlush/keys=distinct", "busiest-tenth", 0, 10}}},
	} {
		name, _, _ := strings.Cut(c.args, " ")
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			args := append(strings.Fields(c.args), "--out="+dir, "--programs="+programs)
			if err := run(t.Context(), args); err != nil {
				t.Fatal(err)
			}
			var lines Lines
			file := File{Result: &lines}
			if _, err := file.Read(dir, name); err != nil {
				t.Fatal(err)
			}
			for _, w := range c.want {
				w.check(t, lines)
			}
			page, err := os.ReadFile(filepath.Join(dir, name+".md"))
			for _, wrong := range []string{"%!", "<no value>", "NaN", "| |", "  |"} {
				if err != nil || strings.Contains(string(page), wrong) {
					t.Errorf("%q in the page, %v:\n%s", wrong, err, page)
				}
			}
		})
	}
}

type want struct {
	name, unit  string
	least, most float64
}

func (w want) check(t *testing.T, lines Lines) {
	t.Helper()
	b := lines.One(w.name)
	if v := b.Median(w.unit); len(b.runs) == 0 || v < w.least || v > w.most {
		t.Errorf("%s: %g %s in %d runs, want %g to %g", w.name, v, w.unit, len(b.runs), w.least,
			w.most)
	}
}

func TestLines(t *testing.T) {
	lines := Lines{
		"goos: linux", "BenchmarkA/way=x/keys=10-2 \t 5\t 3.0 core-ns/op\t 2 adds/s",
		"BenchmarkA/way=x/keys=100-2 \t 5\t 9.0 core-ns/op",
		"BenchmarkA/way=x/keys=10-2 \t 5\t 5.0 core-ns/op", "BenchmarkAB-2 \t 5\t 1.0 ns/op",
		"BenchmarkA/way=x/keys=10-2 \t 5\t 13.0 core-ns/op", "PASS",
	}
	all := lines.Of("A")
	if len(all) != 2 || len(all[0].Runs()) != 3 || all[1].Number("keys") != 100 ||
		all[1].Get("way") != "x" {
		t.Errorf("%+v", all)
	}
	ten := lines.One("A/way=x/keys=10")
	if ten.Range("core-ns/op") != "5.00 (3.00 to 13.00)" || ten.Median("adds/s") != 2 ||
		lines.One("AB").Median("ns/op") != 1 || lines.One("B").Median("ns/op") != 0 {
		t.Errorf("%+v", ten)
	}
}
