package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// layout collects the blobs of an image.
type layout struct {
	name    string
	created time.Time
	files   []file
	images  []descriptor // the manifest of each architecture
	saved   []saved
}

// file is a file of a tar.
type file struct {
	name string
	mode int64
	text []byte
}

// descriptor refers to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// index is a list of images. Schema is always 2.
type index struct {
	Schema    int          `json:"schemaVersion"`
	MediaType string       `json:"mediaType"`
	Manifests []descriptor `json:"manifests"`
}

// manifest is the image of one architecture. Schema is always 2.
type manifest struct {
	Schema    int          `json:"schemaVersion"`
	MediaType string       `json:"mediaType"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

// config describes how an image runs.
type config struct {
	platform
	Created time.Time `json:"created"`
	Config  running   `json:"config"`
	RootFS  rootFS    `json:"rootfs"`
}

// running has the same settings as deploy/Dockerfile.
type running struct {
	User         string
	ExposedPorts map[string]struct{}
	Entrypoint   []string
	Cmd          []string
	StopSignal   string
	Labels       map[string]string
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// saved is the image of one architecture in the manifest.json of docker save.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// add adds the image of one architecture.
func (l *layout) add(arch string, program, certificates []byte) error {
	var plain, packed bytes.Buffer
	files := []file{{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates},
		{"twotier", 0o755, program}}
	if err := l.tar(&plain, files); err != nil {
		return err
	}
	gz := gzip.NewWriter(&packed)
	if _, err := gz.Write(plain.Bytes()); err != nil {
		return err
	}
	if err := gz.Close(); err != nil {
		return err
	}
	of := platform{arch, "linux"}
	layer := l.blob(typeLayer, packed.Bytes())
	_, version, _ := strings.Cut(l.name, ":")
	settings, err := l.encode(typeConfig, config{of, l.created, running{
		User: "65532:65532",
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "7946/tcp": {},
			"7946/udp": {}},
		Entrypoint: []string{"/twotier"}, Cmd: []string{"serve"}, StopSignal: "SIGTERM",
		Labels: map[string]string{"org.opencontainers.image.title": "twotier",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0"},
	}, rootFS{"layers", []string{digest(plain.Bytes())}}})
	if err != nil {
		return err
	}
	image, err := l.encode(typeManifest, manifest{2, typeManifest, settings, []descriptor{layer}})
	image.Platform = &of
	l.images = append(l.images, image)
	l.saved = append(l.saved, saved{settings.path(), []string{l.name + "-" + arch},
		[]string{layer.path()}})
	return err
}

// write writes the layout as a tar.
func (l *layout) write(w io.Writer) error {
	whole, err := l.encode(typeIndex, index{2, typeIndex, l.images})
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(l.name, ":")
	whole.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag,
		"io.containerd.image.name": "docker.io/library/" + l.name}
	if len(l.saved) == 1 {
		l.saved[0].RepoTags = []string{l.name}
	}
	for name, value := range map[string]any{
		"oci-layout":    map[string]string{"imageLayoutVersion": "1.0.0"},
		"index.json":    index{2, typeIndex, []descriptor{whole}},
		"manifest.json": l.saved,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		l.files = append(l.files, file{name, 0o644, text})
	}
	return l.tar(w, l.files)
}

// encode adds a blob of JSON.
func (l *layout) encode(kind string, value any) (descriptor, error) {
	text, err := json.Marshal(value)
	return l.blob(kind, text), err
}

// blob adds a blob.
func (l *layout) blob(kind string, text []byte) descriptor {
	d := descriptor{MediaType: kind, Digest: digest(text), Size: len(text)}
	l.files = append(l.files, file{d.path(), 0o644, text})
	return d
}

// path returns the path of a blob in the layout.
func (d descriptor) path() string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

func digest(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }

// tar writes files in the order of their names, with their folders before them.
func (l *layout) tar(w io.Writer, files []file) error {
	all := make(map[string]file)
	for _, f := range files {
		all[f.name] = f
		for dir := path.Dir(f.name); dir != "."; dir = path.Dir(dir) {
			all[dir+"/"] = file{name: dir + "/", mode: 0o755}
		}
	}
	t := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.text)),
			ModTime: l.created}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(f.text); err != nil {
			return err
		}
	}
	return t.Close()
}
