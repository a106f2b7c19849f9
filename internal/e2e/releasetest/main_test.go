package releasetest

import (
	"flag"
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

// root is the absolute path of this module.
var root = func() string {
	path, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		panic(err)
	}
	return path
}()

var longFlag = flag.Bool("long", false, "make and install packages, too: nfpm takes minutes")

func TestMain(m *testing.M) {
	status := m.Run()
	_ = os.RemoveAll(built.dir) // "" removes nothing
	os.Exit(status)
}

// need returns the path of a program, or skips the test if there is none.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("there is no %s on this machine", name)
	}
	return path
}

// shell is a shell in a folder.
type shell struct {
	dir     string
	environ []string // added to this process's
}

// try runs a script, which ends with its first command that fails, and returns its output.
func (s shell) try(t *testing.T, script string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.environ...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is try, but ends the test if the script fails.
func (s shell) run(t *testing.T, script string) string {
	t.Helper()
	out, err := s.try(t, script)
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return out
}

// page returns the commands of a section of docs/install.md, for this machine's architecture.
func page(t *testing.T, section string) string {
	t.Helper()
	_, text, ok := strings.Cut(must.Read(t, filepath.Join(root, "docs", "install.md")),
		"\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	_, text, block := strings.Cut(text, "\n```sh\n")
	text, _, end := strings.Cut(text, "\n```\n")
	if !ok || !block || !end {
		t.Fatalf("docs/install.md has no commands in the section %s", section)
	}
	return archNames().Replace(text) + "\n"
}

// tested lists the sections of docs/install.md whose commands the tests of this package run.
var tested = []string{"From the sources", "Archives", "Debian and Ubuntu", "Fedora and RHEL", "Go",
	"Node.js", "Python"}

// TestEveryBlockIsRun: each block of commands is the only one of a section that a test runs.
func TestEveryBlockIsRun(t *testing.T) {
	for _, section := range tested {
		page(t, section)
	}
	text := must.Read(t, filepath.Join(root, "docs", "install.md"))
	if n := strings.Count(text, "\n```") / 2; n != len(tested) {
		t.Errorf("docs/install.md has %d blocks, and tests run %d", n, len(tested))
	}
}

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

// enter runs the file script on a copy of this machine: its files with a layer in memory over them,
// a network and processes of its own. All that ends with the script.
const enter = `
ip link set lo up
mount -t tmpfs tmpfs layer
mkdir layer/upper layer/work layer/root
mount -t overlay -o lowerdir=/,upperdir=layer/upper,workdir=layer/work overlay layer/root
cd layer/root
mount --rbind /dev dev
mount -t proc proc proc
rm -rf run/systemd usr/bin/systemctl
mkdir -p run srv/release/dist
mount --bind "$DIST" srv/release/dist
cp "$HERE"/script srv/release/script
cp "$HERE"/systemctl usr/bin/systemctl
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec chroot . sh -euc 'cd /srv/release && exec sh -eu script'
`

// systemctl stands in for systemd, which does not run on the copy: it logs its arguments, and
// starts the command of a unit.
const systemctl = `#!/bin/sh
echo "$*" >>/srv/release/systemctl.log
[ "$*" = "enable --now twotier" ] || exit 0
$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/twotier.service) >/srv/release/node.log 2>&1 &
for _ in $(seq 300); do
  ! twotier count started >/dev/null 2>&1 || exit 0
  sleep .1
done
cat /srv/release/node.log
exit 1
`

// onCopy runs a script in a folder beside the artifacts, on a copy of this machine. It skips the
// test where there can't be one.
func (r *release) onCopy(t *testing.T, script string) {
	t.Helper()
	for _, name := range []string{"unshare", "ip", "chroot"} {
		need(t, name)
	}
	dir := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "layer"), 0o700))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte(systemctl), 0o755))
	must.Write(t, filepath.Join(dir, "enter"), enter)
	must.Write(t, filepath.Join(dir, "script"), "true")
	s := shell{dir, []string{"HERE=" + dir, "DIST=" + r.dist(), "VERSION=" + r.version}}
	const alone = "unshare --mount --net --pid --fork --kill-child --mount-proc sh -eu enter"
	if out, err := s.try(t, alone); err != nil {
		t.Skipf("packages can't be installed on this machine: %v: %s", err, out)
	}
	must.Write(t, filepath.Join(dir, "script"), script)
	s.run(t, alone)
}
