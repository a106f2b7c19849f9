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

	"twotier.dev/twotier/internal/version"
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
	text, err := describe(path)
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
	if b.Metadata.Component.PURL != "pkg:golang/twotier.dev/twotier@v"+version.Number ||
		b.Metadata.Component.Type != "application" || b.Format != "CycloneDX" {
		t.Errorf("%+v", b)
	}
	if v, err := versionOf(path); err != nil || string(v) != version.Number {
		t.Errorf("version %s, %v", v, err) // it was built without the commit
	}
	if again, err := describe(path); err != nil || !bytes.Equal(again, text) {
		t.Errorf("not the same again: %v", err)
	}
}

// TestWhatIsNoProgram is an error.
func TestWhatIsNoProgram(t *testing.T) {
	for _, path := range []string{"main.go", "none"} {
		for _, tell := range []func(string) ([]byte, error){describe, versionOf} {
			if text, err := tell(path); err == nil {
				t.Errorf("%s: %s", path, text)
			}
		}
	}
}
