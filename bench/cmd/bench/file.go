package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
	"time"

	"github.com/prometheus/procfs"
)

// Machine describes the machine on which a figure was measured.
type Machine struct {
	CPU    string    `json:"cpu"`
	Cores  int       `json:"cores"`
	System string    `json:"system"`
	Go     string    `json:"go"`
	Redis  string    `json:"redis"`
	Time   time.Time `json:"time"`
	// Load is the load average of the minute before the report was written: a value well above the
	// benchmark's own load means that the machine was not quiet.
	Load string `json:"load_average"`
}

// ThisMachine describes the current machine.
func ThisMachine() Machine {
	m := Machine{
		CPU: "unknown", Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Redis: redisVersion(), Time: time.Now().UTC().Truncate(time.Second),
	}
	fs, _ := procfs.NewFS(procfs.DefaultMountPoint) // without it the machine is unknown
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		m.CPU = cpus[0].ModelName
	}
	if load, err := fs.LoadAvg(); err == nil {
		m.Load = fmt.Sprintf("%.2f", load.Load1)
	}
	return m
}

// String describes the machine without the moment.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores of %s (%s), %s, Redis %s", m.Cores, m.CPU, m.System, m.Go, m.Redis)
}

// When formats the time for people.
func (m Machine) When() string { return m.Time.Format("2 January 2006 15:04 MST") }

func redisVersion() string {
	out, _ := exec.Command("redis-server", "--version").Output()
	for word := range strings.FieldsSeq(string(out)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			return v
		}
	}
	return "unknown"
}

// File is one stored result.
type File struct {
	// Command reproduces the files. Options are its parsed options.
	Command string `json:"command"`
	Options any    `json:"-"`
	// Note, written by hand, has further remarks about the measurement.
	Note    string  `json:"note,omitempty"`
	Machine Machine `json:"machine"`
	Result  any     `json:"result"`
}

// Write writes name.json, and name.md as Page makes it, into dir.
func (f *File) Write(dir, name string, text *template.Template) (markdown []byte, err error) {
	raw, err1 := json.MarshalIndent(f, "", "  ")
	markdown, err2 := f.Page(name, text)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	path := filepath.Join(dir, name)
	return markdown, errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(path+".json", append(raw, '\n'), 0o644),
		os.WriteFile(path+".md", markdown, 0o644),
	)
}

// Page makes the Markdown of a result with the template of its name.
func (f *File) Page(name string, text *template.Template) ([]byte, error) {
	var md bytes.Buffer
	err := text.ExecuteTemplate(&md, name+".md", f)
	return md.Bytes(), err
}

// Read reads the output of Write into the value that Result points to. If there is none, it leaves
// the file empty.
func (f *File) Read(dir, name string) (found bool, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, f)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	return true, nil
}
