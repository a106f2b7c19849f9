package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write writes a file for a test and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// untar returns the files of a tar by name.
func untar(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for list := tar.NewReader(r); ; {
		h, err := list.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(list)
		if err != nil || h.Uid != 0 || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s: of user %d, at %v, %v", h.Name, h.Uid, h.ModTime, err)
		}
		files[h.Name] = string(text)
	}
}

// decode decodes JSON.
func decode[T any](t *testing.T, text string) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

// image returns the files of an image of programs, which are named after their architectures.
func image(t *testing.T, archs ...string) map[string]string {
	t.Helper()
	args := []string{"-name", "twotier:1.2.3", "-created", "1700000000",
		"-certificates", write(t, "roots", "authorities")}
	for _, arch := range archs {
		args = append(args, arch+"="+write(t, arch, "program for "+arch))
	}
	var once, again bytes.Buffer
	for _, w := range []*bytes.Buffer{&once, &again} {
		if err := run(args, w); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(once.Bytes(), again.Bytes()) {
		t.Error("not the same again")
	}
	return untar(t, &once)
}

// TestImageOfTwoArchitectures follows the digests from the index to the programs.
func TestImageOfTwoArchitectures(t *testing.T) {
	archs := []string{"amd64", "arm64"}
	files := image(t, archs...)
	blob := func(d descriptor) string {
		text := files[d.path()]
		if len(text) != d.Size || digest([]byte(text)) != d.Digest {
			t.Errorf("%+v has %d bytes", d, len(text))
		}
		return text
	}
	top := decode[index](t, files["index.json"])
	if len(top.Manifests) != 1 ||
		top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("%+v", top)
	}
	images := decode[index](t, blob(top.Manifests[0])).Manifests
	if len(images) != len(archs) {
		t.Fatalf("%+v", images)
	}
	for i, arch := range archs {
		if *images[i].Platform != (platform{arch, "linux"}) {
			t.Errorf("%+v is not for %s", images[i], arch)
		}
		m := decode[manifest](t, blob(images[i]))
		packed, err := gzip.NewReader(strings.NewReader(blob(m.Layers[0])))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(packed)
		if err != nil {
			t.Fatal(err)
		}
		c := decode[config](t, blob(m.Config))
		if c.Architecture != arch || !slices.Equal(c.RootFS.DiffIDs, []string{digest(layer)}) {
			t.Errorf("%+v is not about the layer", c)
		}
		if got := untar(t, bytes.NewReader(layer)); got["twotier"] != "program for "+arch ||
			got["etc/ssl/certs/ca-certificates.crt"] != "authorities" {
			t.Errorf("the files are %q", slices.Sorted(maps.Keys(got)))
		}
	}
}

// TestDockerTagsArchitectures: an old Docker gives a tag of its own to each of several
// architectures.
func TestDockerTagsArchitectures(t *testing.T) {
	for _, test := range []struct{ archs, tags []string }{
		{[]string{"arm64"}, []string{"twotier:1.2.3"}},
		{[]string{"amd64", "arm64"}, []string{"twotier:1.2.3-amd64", "twotier:1.2.3-arm64"}},
	} {
		files := image(t, test.archs...)
		var tags []string
		for _, s := range decode[[]saved](t, files["manifest.json"]) {
			tags = append(tags, s.RepoTags...)
			if files[s.Config] == "" || len(s.Layers) != 1 || files[s.Layers[0]] == "" {
				t.Errorf("%+v names files that are not there", s)
			}
		}
		if !slices.Equal(tags, test.tags) {
			t.Errorf("%s: the tags are %s", test.archs, tags)
		}
	}
}

// TestMistakes: the errors name the argument.
func TestMistakes(t *testing.T) {
	here := write(t, "program", "")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-name", "twotier", "amd64=" + here}, "-name \"twotier\" has no tag"},
		{[]string{"-name", "twotier:1"}, "no program: give one such as amd64="},
		{[]string{"-name", "twotier:1", "amd64=" + here}, "-certificates: "},
		{[]string{"-name", "twotier:1", "-certificates", here, here}, ": give an architecture"},
		{[]string{"-name", "twotier:1", "-certificates", here, "amd64=none"}, "none: no such"},
	} {
		var w bytes.Buffer
		if err := run(test.args, &w); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.args, err)
		}
		if w.Len() > 0 {
			t.Errorf("%s: it wrote %d bytes", test.args, w.Len())
		}
	}
}
