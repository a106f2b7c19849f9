package requestpath

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// module is the path of this module, before the names of files in coverage.
const module = "twotier.dev/twotier/"

// root is the directory of the module.
var root = filepath.Join("..", "..", "..")

// request is a kind of request whose path is counted.
type request struct{ name, path, body string }

var requests = []request{
	{"add", "/v1/add", `{"key":"k"}`},
	{"acquire", "/v1/acquire", `{"key":"k","limits":[{"window":"1m","max":1000000}]}`},
}

// TestArchitectureListsTheRequestPath compares the files and figures in docs/architecture.md with
// the files that a warm add and a warm acquire execute.
func TestArchitectureListsTheRequestPath(t *testing.T) {
	text := must.Read(t, filepath.Join(root, "docs", "architecture.md"))
	covered, probed := withCoverage(t), withProbe(t)
	for _, r := range requests {
		blocks := covered.measure(t, r)
		executed := functions(t, blocks)
		files := slices.Sorted(maps.Keys(executed))
		depth := probed.depth(t, r)
		t.Logf("%s: %d files, %d calls deep\n%s", r.name, len(files), len(depth), list(executed))
		t.Logf("calls: %s", strings.Join(depth, " > "))
		t.Logf("only for a guard: %s", strings.Join(guards(t, blocks), ", "))
		if listed := listed(text, r.name); !slices.Equal(listed, files) {
			t.Errorf("docs/architecture.md: a warm %s executes\n%s\nbut listed are\n%s", r.name,
				strings.Join(files, "\n"), strings.Join(listed, "\n"))
		}
		want := fmt.Sprintf("%s: %d files, %d calls deep", r.name, len(files), len(depth))
		if !strings.Contains(text, want) {
			t.Errorf("docs/architecture.md does not say %q", want)
		}
	}
}

// list returns the files with their functions, a line each.
func list(executed map[string][]string) string {
	var b strings.Builder
	for _, file := range slices.Sorted(maps.Keys(executed)) {
		fmt.Fprintf(&b, "  %s: %s\n", file, strings.Join(executed[file], ", "))
	}
	return b.String()
}

// row is a line of the table of files: the file, and the requests that execute it.
var row = regexp.MustCompile("(?m)^\\| `([a-z/]+\\.go)` \\| (both|add|acquire) \\|")

// listed returns the files that the document lists for a kind of request.
func listed(text, name string) (files []string) {
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		if m[2] == "both" || m[2] == name {
			files = append(files, m[1])
		}
	}
	slices.Sort(files)
	return files
}

// block is a line of a coverage profile: file, first line, and how often it was executed.
var block = regexp.MustCompile(`^(.*):(\d+)\.\d+,\S+ \d+ (\d+)$`)

// place is where a block is: its file, its first line, and how the profile spells it, without the
// count.
type place struct {
	file string
	line int
	text string
}

// parse reads a coverage profile.
func parse(t *testing.T, profile string) map[place]int {
	counts := map[place]int{}
	for line := range strings.Lines(profile) {
		m := block.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		n, err := strconv.Atoi(m[3])
		at, err2 := strconv.Atoi(m[2])
		if err != nil || err2 != nil {
			t.Fatalf("%q: %v, %v", line, err, err2)
		}
		text := strings.TrimSuffix(strings.TrimSpace(line), m[3])
		counts[place{strings.TrimPrefix(m[1], module), at, text}] += n
	}
	return counts
}
