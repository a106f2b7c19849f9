package version

import (
	"cmp"
	"regexp"
	"runtime/debug"
	"strings"
)

// Number is the version of this source tree, as in Semantic Versioning 2.0.0.
const Number = "0.1.0"

const modulePath = "twotier.dev/twotier"

// release is the version that scripts/release was given; the linker sets it.
var release = ""

// String returns the version of this program: that given to scripts/release, 0.1.0 for a release or
// if the build recorded nothing, else with the commit, and a mark for uncommitted changes:
// 0.1.0+5a505f0c1d2e.modified.
func String() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Number
	}
	return Of(info)
}

var (
	released = regexp.MustCompile(`^v(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)$`)
	// The form that go build and go install give a commit without a tag: a time and the commit. See
	// https://go.dev/ref/mod#pseudo-versions.
	pseudo = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})(?:\+dirty)?$`)
)

// Of is String for the program of a build record, which may be another program that contains
// twotier.
func Of(info *debug.BuildInfo) string {
	module, own := &info.Main, info.Main.Path == modulePath
	for i := 0; !own && i < len(info.Deps); i++ {
		if d := info.Deps[i]; d.Path == modulePath {
			module = cmp.Or(d.Replace, d)
			break
		}
	}
	of := pseudo.FindStringSubmatch(module.Version)
	if name := released.FindStringSubmatch(module.Version); name != nil && of == nil {
		return name[1]
	}
	commit, modified := "", strings.HasSuffix(module.Version, "+dirty")
	if of != nil {
		commit = of[1]
	}
	for _, s := range info.Settings {
		switch {
		case own && s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case own && s.Key == "vcs.modified":
			modified = s.Value == "true"
		}
	}
	switch {
	case commit == "":
		return Number
	case modified:
		return Number + "+" + commit + ".modified"
	}
	return Number + "+" + commit
}
