package releasetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/version"
)

// program unpacks the archive by the commands of the page, and returns its program.
func (r *release) program(t *testing.T) *proctest.Program {
	t.Helper()
	s := r.folder(t)
	out := s.run(t, page(t, "Archives"))
	want := "twotier " + r.version + " " + runtime.Version() + " "
	if !strings.Contains(out, want) {
		t.Errorf("twotier version printed %q, want %q", out, want)
	}
	return proctest.ProgramAt(filepath.Join(s.dir, "twotier-"+r.version+"-linux-"+runtime.GOARCH,
		"twotier"))
}

// counts checks that a node decides by its counts.
func counts(t *testing.T, node *proctest.Process) {
	t.Helper()
	for _, want := range []string{`"allowed":true`, `"allowed":false`} {
		out := node.MustPost("/v1/acquire", `{"key":"k","limits":[{"window":"1h","max":1}]}`)
		if !strings.Contains(string(out), want) {
			t.Errorf("%s, want %s", out, want)
		}
	}
}

// TestArchive unpacks the archive, starts the program, and lets it count. Its version is that of
// the tree, and its paths are trimmed.
func TestArchive(t *testing.T) {
	r := of(t, "archives")
	if !strings.HasPrefix(r.version, version.Number) && !tagged() {
		t.Errorf("the version is %s, not %s", r.version, version.Number)
	}
	program := r.program(t)
	counts(t, program.Serve(t, proctest.Options{}))
	dir := filepath.Dir(program.Path(t))
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		if must.Read(t, filepath.Join(dir, name)) != must.Read(t, filepath.Join(root, name)) {
			t.Errorf("%s is another one", name)
		}
	}
	for name, want := range map[string]string{"twotier.bash": "complete -o default",
		"_twotier": "#compdef twotier", "twotier.fish": "complete -c twotier"} {
		if !strings.Contains(must.Read(t, filepath.Join(dir, "completions", name)), want) {
			t.Errorf("completions/%s has no %q", name, want)
		}
	}
	text, err := os.ReadFile(program.Path(t))
	if err != nil || bytes.Contains(text, []byte(root+"/")) {
		t.Errorf("the program names %s, %v", root, err)
	}
	sbom := must.Read(t, filepath.Join(r.dist(), filepath.Base(dir)+".cdx.json"))
	if !strings.Contains(sbom, `"version": "v`+r.version+`"`) ||
		!strings.Contains(sbom, "pkg:golang/github.com/hashicorp/memberlist@") {
		t.Errorf("the SBOM is %.400s", sbom)
	}
}

// tagged reports whether the commit has a tag, which is then the version.
func tagged() bool {
	return exec.Command("git", "-C", root, "describe", "--exact-match", "--tags").Run() == nil
}

// TestSameBytes builds the release again, elsewhere, in another time zone and with other
// permissions: all checksums are the same.
func TestSameBytes(t *testing.T) {
	r := of(t, "archives")
	dir := filepath.Join(t.TempDir(), "elsewhere")
	s := shell{t.TempDir(), append(environ(), "PARTS="+r.parts(), "TZ=Asia/Kathmandu",
		"TMPDIR="+t.TempDir())}
	s.run(t, "umask 077; "+filepath.Join(root, "scripts", "release")+" "+dir)
	once := must.Read(t, filepath.Join(r.dist(), "SHA256SUMS"))
	again := must.Read(t, filepath.Join(dir, "SHA256SUMS"))
	if once != again || strings.Count(once, "\n") < 4 {
		t.Errorf("the checksums are\n%s\nthen\n%s", once, again)
	}
}

// TestGivenVersion: VERSION is the version of all artifacts, whatever the commit is.
func TestGivenVersion(t *testing.T) {
	of(t, "archives") // compiles all but the link
	dir := t.TempDir()
	if out, err := build(dir, "VERSION=v1.2.3-rc.1", "PARTS=archives"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	name := "twotier-1.2.3-rc.1-linux-" + runtime.GOARCH
	out := shell{dir: dir}.run(t, "tar -xzf "+name+".tar.gz && "+name+"/twotier version")
	if !strings.HasPrefix(out, "twotier 1.2.3-rc.1 ") {
		t.Errorf("twotier version printed %s", out)
	}
	if sbom := must.Read(t, filepath.Join(dir, name+".cdx.json")); !strings.Contains(sbom,
		`"version": "v1.2.3-rc.1"`) {
		t.Errorf("the SBOM is %.400s", sbom)
	}
	info, err := buildinfo.ReadFile(filepath.Join(dir, name, "twotier"))
	if err != nil || info.Main.Path != "twotier.dev/twotier" {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestWrongSettings: an error names the setting and the remedy, and leaves the folder as it is.
func TestWrongSettings(t *testing.T) {
	for setting, want := range map[string]string{
		"VERSION=1.2":                "VERSION=1.2: give a version such as 1.2.3",
		"VERSION=1.2.3 beta":         "VERSION=1.2.3 beta: give a version",
		"PARTS=archives,floppy":      "PARTS: there is no part floppy",
		"SOURCE_DATE_EPOCH=tomorrow": "SOURCE_DATE_EPOCH=tomorrow: give seconds since 1970",
	} {
		dir := t.TempDir()
		must.Write(t, filepath.Join(dir, "kept"), "")
		out, err := build(dir, setting)
		if err == nil || !strings.Contains(out, "release: "+want) {
			t.Errorf("%s: %v, %s", setting, err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "kept")); err != nil {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

// descriptor is a reference of an image.
type descriptor struct {
	Digest      string
	Platform    struct{ Architecture, OS string }
	Annotations map[string]string
}

// blob decodes a file of an unpacked image.
func blob[T any](t *testing.T, dir, digest string) (value T) {
	t.Helper()
	text := must.Read(t, filepath.Join(dir, "blobs", strings.Replace(digest, ":", "/", 1)))
	must.Succeed(t, json.Unmarshal([]byte(text), &value))
	return value
}

// unpack writes the files of a layer to a folder.
func unpack(t *testing.T, path, dir string) {
	t.Helper()
	f, err := os.Open(path)
	must.Succeed(t, err)
	defer f.Close()
	packed, err := gzip.NewReader(f)
	must.Succeed(t, err)
	for list := tar.NewReader(packed); ; {
		h, err := list.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must.Succeed(t, err)
		if h.Uid != 0 || h.Mode&0o022 != 0 {
			t.Errorf("%s is of user %d, with mode %o", h.Name, h.Uid, h.Mode)
		}
		to := filepath.Join(dir, h.Name)
		if h.FileInfo().IsDir() {
			must.Succeed(t, os.Mkdir(to, 0o755))
			continue
		}
		text, err := io.ReadAll(list)
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(to, text, h.FileInfo().Mode()))
	}
}

// TestImage unpacks the image, and runs its entry point as its user, with access to nothing but its
// files.
func TestImage(t *testing.T) {
	r := of(t, "image")
	chroot := need(t, "chroot")
	dir, files := t.TempDir(), t.TempDir()
	shell{dir: dir}.run(t, "tar -xf "+r.dist()+"/twotier-*-image.tar")
	var top struct{ Manifests []descriptor }
	must.Succeed(t, json.Unmarshal([]byte(must.Read(t, filepath.Join(dir, "index.json"))), &top))
	tag := strings.ReplaceAll(r.version, "+", "-")
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["io.containerd.image.name"] !=
		"docker.io/library/twotier:"+tag {
		t.Fatalf("%+v is not twotier:%s", top, tag)
	}
	images := blob[struct{ Manifests []descriptor }](t, dir, top.Manifests[0].Digest)
	if len(images.Manifests) != 1 || images.Manifests[0].Platform.OS != "linux" ||
		images.Manifests[0].Platform.Architecture != runtime.GOARCH {
		t.Fatalf("%+v is not for this machine", images)
	}
	image := blob[struct {
		Config descriptor
		Layers []descriptor
	}](t, dir, images.Manifests[0].Digest)
	config := blob[struct {
		Config struct {
			User, StopSignal string
			Entrypoint, Cmd  []string
			ExposedPorts     map[string]struct{}
		}
	}](t, dir, image.Config.Digest).Config
	for _, l := range image.Layers {
		unpack(t, filepath.Join(dir, "blobs", strings.Replace(l.Digest, ":", "/", 1)), files)
	}
	if config.User != "65532:65532" || config.StopSignal != "SIGTERM" ||
		!slices.Equal(config.Cmd, []string{"serve"}) || len(config.Entrypoint) != 1 {
		t.Fatalf("the image says %+v", config)
	}
	if must.Read(t, filepath.Join(files, "etc", "ssl", "certs", "ca-certificates.crt")) == "" {
		t.Error("there are no certificates")
	}
	if os.Geteuid() != 0 {
		t.Skip("the image can't be run on this machine: that needs root")
	}
	must.Succeed(t, os.Chmod(files, 0o755))
	node := proctest.ProgramAt(config.Entrypoint[0]).Serve(t, proctest.Options{
		Within: []string{chroot, "--userspec=" + config.User, files}})
	counts(t, node)
	if ids := node.User(); ids != config.User {
		t.Errorf("it runs as %s, not %s", ids, config.User)
	}
	if status := node.Stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// TestImageIsAsTheDockerfile compares the settings of the image with those of deploy/Dockerfile.
func TestImageIsAsTheDockerfile(t *testing.T) {
	r := of(t, "image")
	text := must.Read(t, filepath.Join(root, "deploy", "Dockerfile"))
	image := shell{dir: t.TempDir()}.run(t, "tar -xf "+r.dist()+
		"/twotier-*-image.tar && grep -lr ExposedPorts blobs | xargs cat")
	for _, line := range []struct{ file, image string }{
		{"\nUSER 65532:65532\n", `"User":"65532:65532"`},
		{"\nEXPOSE 8080 7946/tcp 7946/udp\n",
			`"ExposedPorts":{"7946/tcp":{},"7946/udp":{},"8080/tcp":{}}`},
		{"\nSTOPSIGNAL SIGTERM\n", `"StopSignal":"SIGTERM"`},
		{"\nENTRYPOINT [\"/twotier\"]\n", `"Entrypoint":["/twotier"]`},
		{"\nCMD [\"serve\"]\n", `"Cmd":["serve"]`},
	} {
		if !strings.Contains(text, line.file) || !strings.Contains(image, line.image) {
			t.Errorf("deploy/Dockerfile has no %q, or the image no %s:\n%s", line.file, line.image,
				image)
		}
	}
}
