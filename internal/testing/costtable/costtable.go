package costtable

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// head is the first line of the table.
const head = "| call | its work and answer grow with | bound |\n"

var quoted = regexp.MustCompile("`([^`]+)`")

// Calls returns the calls in the table of the document at path, such as "/v1/add", "TT.ADD" or a
// method of gRPC.
func Calls(t testing.TB, path string) (calls []string) {
	t.Helper()
	_, table, ok := strings.Cut(must.Read(t, path), head)
	if !ok {
		t.Fatalf("%s has no table of costs", path)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.TrimSpace(cells[3]) == "" {
			t.Errorf("want three cells: %s", line)
			continue
		}
		for _, call := range quoted.FindAllStringSubmatch(cells[1], -1) {
			calls = append(calls, call[1])
		}
	}
	return calls
}

// Compare compares the calls of a listener with those in the table of which is reports that they
// are its own.
func Compare(t testing.TB, path string, served []string, is func(call string) bool) {
	t.Helper()
	listed := Calls(t, path)
	for _, call := range served {
		if !slices.Contains(listed, call) {
			t.Errorf("%s has no row for %s", path, call)
		}
	}
	for _, call := range listed {
		if is(call) && !slices.Contains(served, call) {
			t.Errorf("%s has a row for %s, which is not served", path, call)
		}
	}
}
