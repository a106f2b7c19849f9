package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mostTracked is the size of the largest file that may be tracked: each clone keeps it for ever.
const mostTracked = 1 << 20

// TestNoBinaryIsTracked finds build outputs that were committed by accident.
func TestNoBinaryIsTracked(t *testing.T) {
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("no git checkout: nothing is tracked")
	}
	list, err := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "-C", root,
		"ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	if len(names) < 100 {
		t.Fatalf("only %d files are tracked", len(names))
	}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(root, name))
		if err == nil && info.Size() > mostTracked {
			t.Errorf("%s has %d bytes, more than %d", name, info.Size(), mostTracked)
		}
	}
}
