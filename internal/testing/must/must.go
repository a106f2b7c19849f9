package must

import (
	"os"
	"path/filepath"
	"testing"
)

// Succeed ends the test unless err is nil.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Write writes a file that only its owner may read.
func Write[T string | []byte](t testing.TB, path string, text T) {
	t.Helper()
	Succeed(t, os.WriteFile(path, []byte(text), 0o600))
}

// File writes a file with this name to a directory of its own, and returns its path.
func File(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	Write(t, path, text)
	return path
}

// Read returns the text of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	Succeed(t, err)
	return string(text)
}
