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

// String returns the version of this program: 0.1.0 for a release or where nothing was recorded,
// else with the commit, and whether anything is not committed: 0.1.0+5a505f0c1d2e.modified.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Number
	}
	return Of(info)
}

var (
	released = regexp.MustCompile(`^v(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)$`)
	// What go build and go install call a commit that has no tag: a time and the commit. See
	// https://go.dev/ref/mod#pseudo-versions.
	pseudo = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})(?:\+dirty)?$`)
)

// Of is String for the program that a build recorded, which may be another one that twotier is a
// part of.
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
