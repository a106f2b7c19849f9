package releasetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// release is a release for this machine's architecture.
type release struct {
	once    sync.Once
	err     error
	dir     string            // is removed when the tests end
	version string            // of all artifacts
	without map[string]string // the parts that can't be built here, with the reason
}

// built is the release that all tests share. The first test that needs it builds it.
var built release

// environ returns the settings of a build: one platform, and a time if there is no commit.
func environ() []string {
	settings := []string{"PLATFORMS=linux/" + runtime.GOARCH, "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}
	git := exec.Command("git", "-C", root, "rev-parse", "--verify", "HEAD")
	git.Env = append(os.Environ(), settings...)
	if git.Run() != nil { // an archive of the sources
		settings = append(settings, "SOURCE_DATE_EPOCH=1700000000")
	}
	return settings
}

// build runs scripts/release with these settings, and returns its output.
func build(dir string, settings ...string) (string, error) {
	cmd := exec.Command(filepath.Join(root, "scripts", "release"), dir)
	cmd.Env = slices.Concat(os.Environ(), environ(), settings)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// parts returns all parts of a release but those without.
func (r *release) parts() string {
	return strings.Join(slices.DeleteFunc(
		[]string{"archives", "packages", "image", "node", "python", "chart"},
		func(part string) bool { return r.without[part] != "" }), ",")
}

func (r *release) build() error {
	r.without = make(map[string]string)
	if _, err := exec.LookPath("npm"); err != nil {
		r.without["node"] = "there is no npm on this machine"
	}
	require := exec.Command(filepath.Join(root, "scripts", "require"), "setuptools")
	if out, _ := require.Output(); len(out) == 0 {
		r.without["python"] = "no python3 has setuptools and wheel"
	}
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	r.dir = dir
	if r.without["packages"], err = r.installPackager(); err != nil {
		return err
	}
	if out, err := build(r.dist(), "PARTS="+r.parts()); err != nil {
		return fmt.Errorf("scripts/release: %w\n%s", err, out)
	}
	archives, err := filepath.Glob(r.dist() + "/twotier-*-linux-" + runtime.GOARCH + ".tar.gz")
	if err == nil && len(archives) != 1 {
		err = fmt.Errorf("the archives are %s", archives)
	}
	r.version = strings.TrimPrefix(strings.Join(archives, ""), r.dist()+"/twotier-")
	r.version = strings.TrimSuffix(r.version, "-linux-"+runtime.GOARCH+".tar.gz")
	return err
}

// installPackager installs nfpm, as scripts/release does. It returns why it could not.
func (r *release) installPackager() (without string, err error) {
	if !*longFlag {
		return "takes long: make long runs it, with -long", nil
	}
	text, err := os.ReadFile(filepath.Join(root, "scripts", "release"))
	if err != nil {
		return "", err
	}
	_, nfpm, _ := strings.Cut(string(text), "\nnfpm=")
	nfpm, _, _ = strings.Cut(nfpm, "\n")
	get := exec.Command("go", "install", nfpm)
	get.Env = append(os.Environ(), "GOBIN="+r.dir)
	if out, err := get.CombinedOutput(); err != nil {
		return fmt.Sprintf("nfpm can't be had: %v: %s", err, out), nil
	}
	return "", nil
}

func (r *release) dist() string { return filepath.Join(r.dir, "dist") }

// of returns the release, or skips the test if a part of it can't be built here.
func of(t *testing.T, part string) *release {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the test is for Linux")
	}
	built.once.Do(func() { built.err = built.build() })
	must.Succeed(t, built.err)
	if reason := built.without[part]; reason != "" {
		t.Skip(reason)
	}
	return &built
}

// folder returns a shell in a folder beside the artifacts.
func (r *release) folder(t *testing.T) shell {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.Symlink(r.dist(), filepath.Join(dir, "dist")))
	return shell{dir: dir}
}

// archNames replaces the names of the architecture in docs/install.md by this machine's.
func archNames() *strings.Replacer {
	if runtime.GOARCH == "arm64" {
		return strings.NewReplacer("amd64", "arm64", "x86_64", "aarch64")
	}
	return strings.NewReplacer()
}
