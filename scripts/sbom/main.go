package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// bom is the part of CycloneDX that is used here: https://cyclonedx.org/docs/1.6/json/.
type bom struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component  component  `json:"component"`
	Properties []property `json:"properties,omitempty"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION")
		os.Exit(2)
	}
	text, err := describe(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
	fmt.Printf("%s\n", text)
}

// describe returns what a program of a version is made of.
func describe(path, version string) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{Component: module("application", info.Main.Path, "v"+version)}}
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "vcs.revision" {
			b.Metadata.Properties = append(b.Metadata.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	b.Components = append(b.Components,
		module("library", "std", strings.TrimPrefix(info.GoVersion, "go")))
	for _, m := range info.Deps {
		m = linked(m)
		b.Components = append(b.Components, module("library", m.Path, m.Version))
	}
	return json.MarshalIndent(b, "", "  ")
}

// linked returns the module that was linked in place of m.
func linked(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

// module describes a module, whose name as a package URL is also its reference.
func module(kind, path, version string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{kind, purl, path, version, purl}
}
