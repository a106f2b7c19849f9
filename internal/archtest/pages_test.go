package archtest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// checkoutFile matches a file of this repository in a command.
	checkoutFile = regexp.MustCompile(`(^|[^\w./])(deploy|clients|scripts|bench|cmd)/|\./cmd/`)
	// waits matches a command that waits for something else, and waitsFor the announcement of it.
	waits    = regexp.MustCompile(`\$\(seq \d+\)|--retry-delay|\bsleep \d{2,}`)
	waitsFor = regexp.MustCompile(`echo ['"]waiting for [^'"]+['"] >&2; `)
	// seeLog matches the log that an announcement names.
	seeLog = regexp.MustCompile(`'waiting for [^']*: see ([\w.]+)' `)
)

// TestPagesNameTheirCheckout checks the commands of all pages. A page with commands that read files
// of the repository names the checkout in its first paragraph, and each command that waits first
// announces what it waits for, with the log of what does not come.
func TestPagesNameTheirCheckout(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatal(len(pages), err)
	}
	waiting, inCheckout := 0, 0
	for _, path := range pages {
		page := filepath.Join("docs", filepath.Base(path))
		text := read(t, page)
		first := strings.Split(text, "\n\n")[1]
		needs := false
		for _, line := range commands(text) {
			needs = needs || checkoutFile.MatchString(line)
			if !waits.MatchString(line) {
				continue
			}
			waiting++
			if !waitsFor.MatchString(line) {
				t.Errorf("%s: does not announce what it waits for: %s", page, line)
			}
			if log := seeLog.FindStringSubmatch(line); log != nil &&
				!strings.Contains(text, ">"+log[1]) {
				t.Errorf("%s: nothing writes %s", page, log[1])
			}
		}
		if needs {
			inCheckout++
			if !strings.Contains(first, "checkout") {
				t.Errorf("%s: its commands need a checkout, but it begins with %q", page, first)
			}
		}
	}
	if waiting < 20 || inCheckout < 5 {
		t.Errorf("found %d commands that wait, and %d pages that need a checkout", waiting,
			inCheckout)
	}
}

// commands returns the lines of the blocks of a page that are pasted into a shell.
func commands(text string) (list []string) {
	kind := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if mark, ok := strings.CutPrefix(line, "```"); ok {
			kind = mark
			continue
		}
		prompt, ok := strings.CutPrefix(line, "$ ")
		switch {
		case kind == "sh":
			list = append(list, line)
		case kind == "console" && ok:
			list = append(list, prompt)
		}
	}
	return list
}
