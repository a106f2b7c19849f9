package deploytest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/version"
)

// buildah builds images without a daemon, in a temporary store that is removed after the test.
type buildah struct {
	t      *testing.T
	dir    string
	common []string // the beginning of a command
}

// try runs a buildah command and returns its output.
func (b buildah) try(args ...string) (string, error) {
	cmd := exec.CommandContext(b.t.Context(), b.common[0], slices.Concat(b.common[1:], args)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+b.dir)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run is try, but ends the test if the command fails.
func (b buildah) run(args ...string) string {
	b.t.Helper()
	out, err := b.try(args...)
	if err != nil {
		b.t.Fatalf("buildah %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// newBuildah skips the test where containers can't be run.
func newBuildah(t *testing.T) buildah {
	t.Helper()
	path := need(t, "buildah")
	if os.Geteuid() != 0 {
		t.Skip("images can't be built on this machine: that needs root")
	}
	dir, err := os.MkdirTemp("", "image")
	must.Succeed(t, err)
	t.Cleanup(func() {
		// Files mounted into containers belong to this machine, and must not be removed with them.
		mounted, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || strings.Contains(string(mounted), dir) {
			t.Errorf("%s is left: something is mounted there (%v)", dir, err)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return buildah{t, dir, []string{path, "--storage-driver=vfs", "--root=" + dir + "/root",
		"--runroot=" + dir + "/run"}}
}

// builderName stands for an image of Go; no registry is asked for it.
const builderName = "localhost/builder"

// builder makes an image that has this machine's shell and Go, by mounting them, and returns the
// mounts that it needs. It skips the test where a container with them can't be run.
func (b buildah) builder() (mounts []string) {
	b.t.Helper()
	can := func(out string, err error) string {
		b.t.Helper()
		if err != nil {
			b.t.Skipf("images can't be built on this machine: %v: %s", err, out)
		}
		return out
	}
	can(b.try("from", "--name", "builder", "scratch"))
	root := can(b.try("mount", "builder"))
	b.check(os.Mkdir(filepath.Join(root, "tmp"), 0o755))
	mounts = []string{"--volume=/usr:/usr:ro",
		"--volume=" + goTool(b.t, "env", "GOROOT") + ":/GOROOT:ro"}
	for _, name := range []string{"bin", "lib", "lib64", "etc/ssl/certs"} {
		switch to, err := os.Readlink("/" + name); {
		case err == nil: // into /usr, as on all of today's Debians
			b.check(os.Symlink(to, filepath.Join(root, name)))
		case name == "etc/ssl/certs":
			b.check(os.MkdirAll(filepath.Join(root, name), 0o755))
			certificates, _ := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
			b.check(os.WriteFile(filepath.Join(root, name, "ca-certificates.crt"), certificates,
				0o644))
		case exists("/" + name):
			mounts = append(mounts, "--volume=/"+name+":/"+name+":ro")
		}
	}
	// A build in the image uses the caches of builds outside, and never the network.
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		mounts = append(mounts, "--volume="+goTool(b.t, "env", name)+":/"+name)
	}
	b.run("config", "--env=PATH=/GOROOT/bin:/usr/bin:/bin", "--env=GOCACHE=/GOCACHE",
		"--env=GOMODCACHE=/GOMODCACHE", "--env=GOPROXY=off", "--env=GOTOOLCHAIN=local", "builder")
	can(b.try(slices.Concat([]string{"run", "--isolation=chroot"}, mounts,
		[]string{"builder", "--", "/bin/sh", "-c", "go version"})...))
	b.run("commit", "builder", builderName)
	return mounts
}

func (b buildah) check(err error) {
	b.t.Helper()
	must.Succeed(b.t, err)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// goTool returns the output of a Go command, in the directory of this module.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	name := os.Getenv("GO")
	if name == "" {
		name = "go"
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Stderr = top(), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// source copies the sources of the program, because other tests may write elsewhere in the tree
// meanwhile. The copy excludes the repository, like the archive of a release.
func source(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	whole, err := filepath.Abs(top())
	must.Succeed(t, err)
	wanted := []string{"go.mod", "go.sum", ".dockerignore"}
	for _, dir := range strings.Fields(goTool(t, "list", "-deps", "-f",
		`{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}`, "./cmd/twotier")) {
		name, err := filepath.Rel(whole, dir)
		must.Succeed(t, err)
		wanted = append(wanted, strings.Split(name, string(filepath.Separator))[0])
	}
	slices.Sort(wanted)
	for _, name := range slices.Compact(wanted) {
		from, to := filepath.Join(whole, name), filepath.Join(dir, name)
		if info, err := os.Stat(from); err == nil && info.IsDir() {
			must.Succeed(t, os.CopyFS(to, os.DirFS(from)))
			continue
		}
		must.Write(t, to, read(t, name))
	}
	return dir
}

// TestImage builds the image of deploy/Dockerfile, runs it as the image's user with access to
// nothing but its files, asks it for a decision, and stops it with the image's stop signal.
func TestImage(t *testing.T) {
	b := newBuildah(t)
	mounts := b.builder()
	goTool(t, "mod", "download")
	b.run(slices.Concat([]string{"build", "--isolation=chroot", "--layers=false", "--pull-never",
		"--build-arg=BUILDER=" + builderName, "--tag=localhost/twotier",
		"--file=" + top("deploy", "Dockerfile")}, mounts, []string{source(t)})...)

	b.run("from", "--name", "twotier", "--pull-never", "localhost/twotier")
	var image struct {
		OCIv1 struct {
			Config struct {
				User, StopSignal string
				Entrypoint, Cmd  []string
			} `json:"config"`
		}
	}
	must.Succeed(t, json.Unmarshal([]byte(b.run("inspect", "twotier")), &image))
	config := image.OCIv1.Config
	user, group, _ := strings.Cut(config.User, ":")
	if user == "" || user == "0" || group == "" || group == "0" || config.StopSignal != "SIGTERM" ||
		len(config.Entrypoint) != 1 || !slices.Equal(config.Cmd, []string{"serve"}) {
		t.Fatalf("the image says %+v", config)
	}

	root := b.run("mount", "twotier")
	node := proctest.ProgramAt(config.Entrypoint[0]).Serve(t, proctest.Options{
		Within: []string{need(t, "chroot"), "--userspec=" + config.User, root}})
	if status, body := node.Ready(); status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	out := node.MustPost("/v1/acquire", `{"key":"k","limits":[{"window":"1m","max":1}]}`)
	if !strings.Contains(string(out), `"allowed":true`) {
		t.Errorf("acquire: %s", out)
	}
	if status, body := node.Get("/"); status != 200 || !strings.Contains(string(body), "<html") {
		t.Errorf("the page: %d %.80s", status, body)
	}
	// There was no repository to learn the commit from.
	if n := node.Metric("twotier_build_info", `version="`+version.Number+`"`); n != 1 {
		t.Errorf("twotier_build_info is %d", n)
	}
	if ids := node.User(); ids != config.User {
		t.Errorf("it runs as %s, not %s", ids, config.User)
	}
	if status := node.Stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
