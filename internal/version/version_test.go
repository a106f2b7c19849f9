package version_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/version"
)

// TestNumberIsTheNewest checks that the version that programs report, the newest one in the
// changelog, and the deployed ones are the same.
func TestNumberIsTheNewest(t *testing.T) {
	for path, pattern := range map[string]string{
		"CHANGELOG.md":                       `(?m)^## \[(\d\S*)\] - \d{4}-\d\d-\d\d$`,
		"deploy/helm/Chart.yaml":             `(?m)^appVersion: (.*)$`,
		"deploy/kubernetes/statefulset.yaml": `(?m)^ *image: twotier:(.*)$`,
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
		must.Succeed(t, err)
		found := regexp.MustCompile(pattern).FindSubmatch(text) // the first is the newest
		if found == nil || string(found[1]) != version.Number {
			t.Errorf("%s has %q, not %s", path, found, version.Number)
		}
	}
}

const ours = "twotier.dev/twotier"

// TestOf lists the records of builds.
func TestOf(t *testing.T) {
	clone := []debug.BuildSetting{{Key: "vcs", Value: "git"},
		{Key: "vcs.revision", Value: "5a505f0c1d2e3f405162738495a6b7c8d9e0f1a2"},
		{Key: "vcs.modified", Value: "false"}}
	modified := append(clone[:2:2], debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	const at = "20261123190000-5a505f0c1d2e"
	for name, tt := range map[string]struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		"go install @v0.3.1":      {"v0.3.1", nil, "0.3.1"},
		"go install @v0.4.0-rc.1": {"v0.4.0-rc.1", nil, "0.4.0-rc.1"},
		"go install @main":        {"v0.1.1-0." + at, nil, "N+5a505f0c1d2e"},
		"go install of no tag":    {"v0.0.0-" + at, nil, "N+5a505f0c1d2e"},
		"go install after rc.1":   {"v0.4.0-rc.1.0." + at, nil, "N+5a505f0c1d2e"},
		"clone at a tag":          {"v0.3.1", clone, "0.3.1"},
		"modified at a tag":       {"v0.3.1+dirty", modified, "N+5a505f0c1d2e.modified"},
		"clone":                   {"v0.0.0-" + at, clone, "N+5a505f0c1d2e"},
		"modified clone":          {"v0.0.0-" + at + "+dirty", modified, "N+5a505f0c1d2e.modified"},
		"commit alone":            {"(devel)", clone, "N+5a505f0c1d2e"},
		"no version control":      {"(devel)", nil, "N"},
		"test":                    {"", nil, "N"},
	} {
		want := regexp.MustCompile("^N").ReplaceAllString(tt.want, version.Number)
		info := &debug.BuildInfo{Main: debug.Module{Path: ours, Version: tt.version},
			Settings: tt.settings}
		if got := version.Of(info); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		// A program that contains twotier has a separate commit.
		part := &debug.BuildInfo{Main: debug.Module{Path: "example.com/shop", Version: "v7.0.0"},
			Deps: []*debug.Module{{Path: ours, Version: "v0.3.1"}}, Settings: clone}
		if got := version.Of(part); got != "0.3.1" {
			t.Errorf("as a part: %s", got)
		}
		part.Deps[0].Replace = &debug.Module{Path: "../twotier"}
		if got := version.Of(part); got != version.Number {
			t.Errorf("as a part that is replaced: %s", got)
		}
	}
}
