package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestDiagramIsCommitted compares docs/architecture.svg with the picture that this command draws.
func TestDiagramIsCommitted(t *testing.T) {
	var drawn bytes.Buffer
	if err := draw(&drawn); err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, drawn.Bytes()) {
		t.Error("docs/architecture.svg differs: go run ./scripts/diagram > docs/architecture.svg")
	}
}

// TestDiagramIsXML reads the picture to its end.
func TestDiagramIsXML(t *testing.T) {
	var drawn bytes.Buffer
	if err := draw(&drawn); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(&drawn)
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
