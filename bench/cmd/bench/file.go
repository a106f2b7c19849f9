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
	// Load is the load average of the minute before the report was written: anything well above
	// what the benchmark itself runs means that the machine was not quiet.
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

// String is a machine without the moment.
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

// File is one result as it is stored.
type File[T any] struct {
	// Command reproduces the files.
	Command string  `json:"command"`
	Machine Machine `json:"machine"`
	Result  T       `json:"result"`
}

// Write writes name.json and name.md into dir. The template makes the latter from the file and
// further data, as .File and .Data.
func (f *File[T]) Write(dir, name string, text *template.Template,
	data any) (markdown string, err error) {
	raw, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	var md bytes.Buffer
	if err := text.ExecuteTemplate(&md, name+".md",
		map[string]any{"File": f, "Data": data}); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	path := filepath.Join(dir, name)
	return md.String(), errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(path+".json", append(raw, '\n'), 0o644),
		os.WriteFile(path+".md", md.Bytes(), 0o644),
	)
}

// Read reads what Write has written. If there is nothing, it leaves the file empty.
func (f *File[T]) Read(dir, name string) (found bool, err error) {
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
