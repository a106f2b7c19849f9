package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/testing/must"
)

// settingRow matches the row of a setting on the page, up to its default.
var settingRow = regexp.MustCompile("(?m)^\\| `--([a-z-]+)[^`]*` \\| ([^|]*) \\|")

// others is the heading of the settings on the page that this test writes.
const others = "## All others\n\n| setting | default | meaning |\n|---|---|---|\n"

// TestConfigurationPage compares docs/configuration.md with the flags of twotier serve: the twelve
// settings at its top have the right defaults, and a table has all others as the help does. With
// -update it writes that table.
func TestConfigurationPage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "configuration.md")
	page := must.Read(t, path)
	top, rest, ok := strings.Cut(page, others)
	if !ok {
		t.Fatalf("the page has no %s", others)
	}
	shown := map[string]string{}
	for _, m := range settingRow.FindAllStringSubmatch(top, -1) {
		shown[m[1]] = m[2]
	}
	if len(shown) != 12 {
		t.Errorf("the page begins with %d settings, want 12", len(shown))
	}
	serve, _, err := newRoot(cli.IO{}).Find([]string{"serve"})
	must.Succeed(t, err)
	var rows strings.Builder
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		def := ""
		if f.DefValue != "" {
			def = "`" + f.DefValue + "`"
		}
		if on, isShown := shown[f.Name]; isShown {
			if on != def {
				t.Errorf("--%s: the page has the default %s, want %s", f.Name, on, def)
			}
			delete(shown, f.Name)
		} else if f.Name != "help" {
			rows.WriteString(rowOf(f, def))
		}
	})
	for name := range shown {
		t.Errorf("--%s is no setting", name)
	}
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(top+others+rows.String()), 0o644))
	} else if rest != rows.String() {
		t.Errorf("the table of all others is outdated; run go test -update. Now it is\n%s", &rows)
	}
}

// rowOf returns the row of a flag with a default.
func rowOf(f *pflag.Flag, def string) string {
	arg, usage := pflag.UnquoteUsage(f)
	usage = strings.Join(strings.Fields(usage), " ")
	name := strings.TrimSpace("--" + f.Name + " " + arg)
	return "| `" + name + "` | " + def + " | " + strings.ReplaceAll(usage, "|", "\\|") + " |\n"
}
