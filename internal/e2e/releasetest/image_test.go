package releasetest

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

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
