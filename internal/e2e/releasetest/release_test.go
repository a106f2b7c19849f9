package releasetest

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
