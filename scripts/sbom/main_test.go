package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// TestModulesAreThoseOfTheProgram builds twotier and compares its bill of materials with what go
// version -m says.
func TestModulesAreThoseOfTheProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "twotier")
	args := []string{"build", "-buildvcs=false", "-o", path}
	// Beside tests under the race detector, all but the link is there already.
	self, _ := debug.ReadBuildInfo()
	if self != nil && slices.Contains(self.Settings, debug.BuildSetting{Key: "-race",
		Value: "true"}) {
		args = append(args, "-race")
	}
	args = append(args, "twotier.dev/twotier/cmd/twotier")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	listing, err := exec.Command("go", "version", "-m", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for lines := bufio.NewScanner(bytes.NewReader(listing)); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) >= 3 && f[0] == "dep" {
			want = append(want, "pkg:golang/"+f[1]+"@"+strings.ReplaceAll(f[2], "+", "%2B"))
		}
	}
	text, err := describe(path, "1.2.3+commit")
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range b.Components {
		got = append(got, c.PURL)
	}
	if len(want) < 10 || !strings.HasPrefix(got[0], "pkg:golang/std@1.") ||
		!slices.Equal(got[1:], want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if b.Metadata.Component.PURL != "pkg:golang/twotier.dev/twotier@v1.2.3%2Bcommit" ||
		b.Metadata.Component.Type != "application" || b.Format != "CycloneDX" {
		t.Errorf("%+v", b)
	}
	if again, err := describe(path, "1.2.3+commit"); err != nil || !bytes.Equal(again, text) {
		t.Errorf("not the same again: %v", err)
	}
}

// TestWhatIsNoProgram is an error.
func TestWhatIsNoProgram(t *testing.T) {
	for _, path := range []string{"main.go", "none"} {
		if text, err := describe(path, "1.2.3"); err == nil {
			t.Errorf("%s: %s", path, text)
		}
	}
}
